// Reads a rank's slices of the model into packed weights.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/ops/backend.h"
#include "model/format/tensor_source.h"
#include "parallel/program/rank_program.h"

namespace skein::worker {

struct ShardLoadOptions {
  int threads = 1;
  // Called now and then, from any of the threads, one at a time; may be null.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
};

struct LoadedShard {
  std::unique_ptr<kernels::Weights> weights;
  int64_t bytes_read = 0;    // of this rank's slices
  int64_t bytes_made = 0;    // of those that the back end made itself
  absl::Duration time;       // that reading, making and packing took
  std::string slice_digest;  // of the slices; ranks that read equal bytes have equal digests
};

// Reads the slices of `tensors` that `program` needs into weights of `backend`, which makes numbers
// that are Counted itself where it can; the digest does not tell of these. Takes a few MiB of
// memory per thread besides the weights. Errors name the tensor.
absl::StatusOr<LoadedShard> LoadShard(const model::TensorSource& tensors,
                                      const plan::RankProgram& program, kernels::Backend& backend,
                                      const ShardLoadOptions& options);

}  // namespace skein::worker

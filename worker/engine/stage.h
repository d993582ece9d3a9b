// One rank's part of every step: receives activations, runs its layers, sends them on; the first
// shard of the last stage samples.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/program.h"
#include "parallel/comm/communicator.h"
#include "worker/engine/step_order.h"

namespace skein::worker {

// When a stage computed a micro-batch; waiting for activations is outside.
struct TraceEvent {
  int64_t step = 0;
  int32_t stage = 0;
  int32_t micro_batch = 0;
  absl::Time begin;
  absl::Time end;
};

struct StageOptions {
  int32_t tensor = 1;
  int32_t pipeline = 1;
  int32_t stage = 0;
  int32_t shard = 0;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t page_size = 0;

  // The stage's shards; null when there is one.
  comm::Communicator* tensor_group = nullptr;
  // All ranks of the replica, rank = stage * tensor + shard; null when there is one.
  comm::Communicator* replica_group = nullptr;

  std::function<void(const TraceEvent&)> trace;  // may be null
  // Sees the logits [vocab_size] of every sampled row, on the sampling rank; may be null.
  std::function<void(RequestId, int64_t position, absl::Span<const float>)> observe_logits;
};

// Owned by one rank and used by one thread.
class Stage {
 public:
  // `executable` runs `program` and outlives the stage, as do the groups.
  Stage(const StageOptions& options, const kernels::Program& program,
        kernels::Executable* executable);
  ~Stage();

  bool samples() const { return options_.shard == 0 && is_last(); }

  // Carries out the order. On the sampling rank appends to `sampled` a row per sampling chunk. An
  // error means that the replica cannot go on: a lost peer, a broken order.
  absl::Status Run(const StepOrder& order, std::vector<SampledRow>* sampled);

 private:
  struct Sequence {
    std::vector<int32_t> pages;
    std::vector<int32_t> prompt;  // on the sampling rank
    std::vector<int32_t> output;
    kernels::SamplingParams sampling;
  };
  struct BatchBuffers;

  bool is_first() const { return options_.stage == 0; }
  bool is_last() const { return options_.stage == options_.pipeline - 1; }

  absl::Status FillBatch(const std::vector<ChunkOrder>& chunks);
  absl::Status Receive(int64_t rows);
  absl::Status Send(int64_t rows);
  SampledRow SampleRow(const ChunkOrder& chunk, int64_t output_row);

  const StageOptions options_;
  const kernels::Program& program_;
  kernels::Executable* const executable_;
  std::unique_ptr<kernels::Collectives> collectives_;
  std::unordered_map<RequestId, Sequence> sequences_;
  std::unique_ptr<BatchBuffers> batch_;  // kept between steps to reuse its memory
};

}  // namespace skein::worker

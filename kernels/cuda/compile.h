// A Program as kernels that are launched one after the other.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/workspace.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/program.h"

namespace skein::kernels::cuda {

// A Program's operations in order, fused where a kernel does several.
class CompiledProgram {
 public:
  virtual ~CompiledProgram() = default;
  // Launches all of it. One thread at a time.
  virtual absl::Status Enqueue(const BatchShape& shape) const = 0;
  // Tries out how products of so many rows and outputs are fastest. Writes to buffers; waits for
  // the stream.
  virtual absl::Status Tune(const BatchShape& shape) const = 0;
  // Whether it can be captured: what runs on the device alone can.
  virtual bool CanBeCaptured() const = 0;
  // Sums over shards, of a batch whose every row is an output.
  virtual int64_t sums() const = 0;
};

// The Program is valid and outlives what is compiled. Unimplemented, with the operation's index,
// for what there are no kernels for.
absl::StatusOr<std::unique_ptr<CompiledProgram>> CompileProgram(const Program& program,
                                                                const Bindings& bindings,
                                                                Workspace workspace);

}  // namespace skein::kernels::cuda

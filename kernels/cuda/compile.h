// A Program as kernels that are launched one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/stream.h"
#include "kernels/cuda/blas_linear.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/device_places.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/program.h"

namespace skein::kernels::cuda {

// What differs from batch to batch.
struct BatchShape {
  int batch = 0;  // whose input and output it is
  int32_t rows = 0;
  int32_t sequences = 0;
  int32_t outputs = 0;
  bool decodes = false;   // a sequence has one row
  bool prefills = false;  // a sequence has several
  bool marked = false;  // with ranges of NVTX by layer and operation, "layer 3" around "attention"
  bool captured = false;  // as a graph, not run
};

// What kernels work on.
struct Workspace {
  std::byte* data = nullptr;  // of the device, places.bytes
  DevicePlaces places;
  int64_t page_table_stride = 0;
  int32_t multiprocessors = 0;
  Blas* blas = nullptr;
  Stream stream;  // that all of it runs on

  template <typename T>
  T* At(int64_t place) const {
    return reinterpret_cast<T*>(data + place);
  }
  void* Buffer(BufferId id, int batch) const { return data + places.buffers[batch][id]; }
};

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

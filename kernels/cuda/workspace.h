// What a Program's kernels work on, and what they are told of a batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "kernels/cuda/blas_linear.h"
#include "kernels/cuda/device_places.h"
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

}  // namespace skein::kernels::cuda

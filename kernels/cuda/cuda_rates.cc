#include "kernels/cuda/cuda_rates.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status_macros.h"
#include "kernels/cuda/blas_linear.h"
#include "kernels/cuda/ceilings.h"
#include "kernels/cuda/cuda_library.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/resources.h"

namespace skein::kernels::cuda {
namespace {

constexpr int64_t kReadBytes = int64_t{8} << 30;  // long enough for launches not to matter
constexpr int64_t kSide = 8192;
constexpr int kRuns = 7;

// Seconds of one launch, the median.
absl::StatusOr<double> Time(Stream stream, const std::function<absl::Status()>& enqueue) {
  SKEIN_RETURN_IF_ERROR(enqueue());  // what is chosen or loaded at the first time
  cudaEvent_t events[2] = {};
  for (cudaEvent_t& event : events) SKEIN_CUDA_RETURN_IF_ERROR(cudaEventCreate(&event));
  std::vector<float> times;
  for (int run = 0; run < kRuns; ++run) {
    SKEIN_CUDA_RETURN_IF_ERROR(cudaEventRecord(events[0], CudaStream(stream)));
    SKEIN_RETURN_IF_ERROR(enqueue());
    SKEIN_CUDA_RETURN_IF_ERROR(cudaEventRecord(events[1], CudaStream(stream)));
    SKEIN_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(events[1]));
    SKEIN_CUDA_RETURN_IF_ERROR(cudaEventElapsedTime(&times.emplace_back(), events[0], events[1]));
  }
  for (cudaEvent_t event : events) SKEIN_CUDA_RETURN_IF_ERROR(cudaEventDestroy(event));
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2] / 1e3;
}

absl::StatusOr<double> ReadRate(int32_t multiprocessors, Stream stream) {
  SKEIN_ASSIGN_OR_RETURN(const DeviceMemory data, DeviceMemory::Allocate(kReadBytes, "a probe"));
  SKEIN_ASSIGN_OR_RETURN(const DeviceMemory sink, DeviceMemory::Allocate(4, "a probe"));
  SKEIN_RETURN_IF_ERROR(EnqueueFill(data.data(), kReadBytes / 2, 1, stream));
  double best = 0;
  // Which grid reads fastest differs from chip to chip.
  for (const int32_t blocks : {1, 4, 16, 64}) {
    SKEIN_ASSIGN_OR_RETURN(const double seconds, Time(stream, [&] {
                             return EnqueueRead(data.data(), kReadBytes,
                                                reinterpret_cast<uint32_t*>(sink.data()),
                                                blocks * multiprocessors, stream);
                           }));
    best = std::max(best, static_cast<double>(kReadBytes) / seconds);
  }
  return best;
}

absl::StatusOr<double> ProductRate(Stream stream) {
  const int64_t bytes = 2 * kSide * kSide;
  SKEIN_ASSIGN_OR_RETURN(
      const DeviceMemory memory,
      DeviceMemory::Allocate(3 * bytes + static_cast<int64_t>(Blas::kWorkspaceBytes), "a probe"));
  SKEIN_RETURN_IF_ERROR(EnqueueFill(memory.data(), 2 * kSide * kSide, 1, stream));
  SKEIN_ASSIGN_OR_RETURN(const std::unique_ptr<Blas> blas,
                         Blas::Create(memory.data() + 3 * bytes, Blas::kWorkspaceBytes));
  SKEIN_ASSIGN_OR_RETURN(const double seconds, Time(stream, [&] {
                           return blas->Enqueue({.rows = kSide,
                                                 .n = kSide,
                                                 .k = kSide,
                                                 .in = memory.data(),
                                                 .weight = memory.data() + bytes,
                                                 .out = memory.data() + 2 * bytes,
                                                 .in_stride = kSide,
                                                 .weight_stride = kSide,
                                                 .out_stride = kSide},
                                                stream);
                         }));
  return 2.0 * kSide * kSide * kSide / seconds;
}

}  // namespace

absl::StatusOr<CudaRates> MeasureCudaRates(int device) {
  SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device));
  int multiprocessors = 0;
  SKEIN_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  SKEIN_ASSIGN_OR_RETURN(const OwnedStream stream, OwnedStream::Create());
  CudaRates rates;
  SKEIN_ASSIGN_OR_RETURN(rates.read_bytes_per_s, ReadRate(multiprocessors, stream.get()));
  SKEIN_ASSIGN_OR_RETURN(rates.flops_per_s, ProductRate(stream.get()));
  return rates;
}

}  // namespace skein::kernels::cuda

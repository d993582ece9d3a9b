#include "kernels/cuda/bench_harness.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cuda/ceilings.h"
#include "kernels/cuda/cuda_rates.h"
#include "kernels/cuda/cuda_status.h"

namespace skein::kernels::cuda {
namespace {

// Several times the largest L2 cache (60 MB on H200).
constexpr int64_t kColdBytes = int64_t{256} << 20;
constexpr int kReplays = 11;
constexpr int kMinLaunches = 8;
constexpr int kMaxLaunches = 64;

void RequireCuda(cudaError_t code, const char* expression) {
  Require(CudaStatus(code, expression));
}
#define REQUIRE_CUDA(expr) RequireCuda((expr), #expr)

}  // namespace

DeviceBytes RandomBytes(int64_t bytes, Stream stream) {
  DeviceBytes memory(bytes);
  Require(EnqueueFill(memory.data(), bytes / 2, 1, stream));
  REQUIRE_CUDA(cudaDeviceSynchronize());
  return memory;
}

Bench::Bench(std::string only) : only_(std::move(only)), workspace_(Blas::kWorkspaceBytes) {
  absl::StatusOr<std::unique_ptr<Blas>> blas =
      Blas::Create(workspace_.data(), Blas::kWorkspaceBytes);
  Require(blas.status());
  blas_ = *std::move(blas);
}

int Bench::Sets(int64_t bytes) {
  return static_cast<int>(
      std::clamp<int64_t>(kColdBytes / std::max<int64_t>(bytes, 1) + 1, 2, kMaxLaunches));
}

double Bench::Time(const std::function<absl::Status(int set)>& enqueue, int sets) {
  Require(enqueue(0));  // what is chosen or loaded at the first time
  REQUIRE_CUDA(cudaDeviceSynchronize());
  const int launches = std::clamp(sets, kMinLaunches, kMaxLaunches);
  const cudaStream_t stream = CudaStream(stream_);
  cudaGraph_t graph = nullptr;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < launches; ++i) Require(enqueue(i % sets));
  REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t replay = nullptr;
  REQUIRE_CUDA(cudaGraphInstantiate(&replay, graph, 0));
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  REQUIRE_CUDA(cudaEventCreate(&begin));
  REQUIRE_CUDA(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < kReplays + 2; ++i) {
    REQUIRE_CUDA(cudaEventRecord(begin, stream));
    REQUIRE_CUDA(cudaGraphLaunch(replay, stream));
    REQUIRE_CUDA(cudaEventRecord(end, stream));
    REQUIRE_CUDA(cudaEventSynchronize(end));
    float milliseconds = 0;
    REQUIRE_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= 2) times.push_back(milliseconds);
  }
  REQUIRE_CUDA(cudaGraphExecDestroy(replay));
  REQUIRE_CUDA(cudaGraphDestroy(graph));
  REQUIRE_CUDA(cudaEventDestroy(begin));
  REQUIRE_CUDA(cudaEventDestroy(end));
  std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
  return times[kReplays / 2] / 1e3 / launches;
}

void Bench::MeasureCeilings() {
  cudaDeviceProp properties;
  REQUIRE_CUDA(cudaGetDeviceProperties(&properties, 0));
  const absl::StatusOr<CudaRates> rates = skein::kernels::MeasureCudaRates(0);
  Require(rates.status());
  ceilings_ = {.bytes_per_s = rates->read_bytes_per_s, .operations_per_s = rates->flops_per_s};
  report_.emplace("kernels", "",
                  BenchMachine{.kind = "cuda", .device = properties.name, .ceilings = ceilings_});
  report_->Begin();
}

void Bench::Add(const std::string& name, double bytes, double operations, double seconds) {
  report_->Add({.name = name,
                .seconds = seconds,
                .samples = kReplays,
                .bytes = bytes,
                .operations = operations,
                .ceilings = ceilings_});
}

}  // namespace skein::kernels::cuda

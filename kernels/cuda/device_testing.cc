#include "kernels/cuda/device_testing.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "kernels/cuda/cuda_status.h"

namespace skein::kernels::cuda {
namespace {

void RequireCuda(cudaError_t code, const char* expression) {
  Require(CudaStatus(code, expression));
}

// NVML's nvmlMemory_t.
struct NvmlMemory {
  unsigned long long total = 0;  // NOLINT(google-runtime-int)
  unsigned long long free = 0;   // NOLINT(google-runtime-int)
  unsigned long long used = 0;   // NOLINT(google-runtime-int)
};

template <typename Function>
Function* FunctionOf(void* library, const char* name) {
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

#define REQUIRE_CUDA(expr) RequireCuda((expr), #expr)

namespace {

// Of device 0; rates are in kHz.
int32_t Attribute(cudaDeviceAttr what) {
  int value = 0;
  REQUIRE_CUDA(cudaDeviceGetAttribute(&value, what, 0));
  return value;
}

}  // namespace

absl::StatusOr<bool> HasGpu() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorNoDevice) return false;
  if (code == cudaErrorInsufficientDriver) {
    // Said of a driver that is too old, and of none, whose version is 0.
    int driver = 0;
    SKEIN_CUDA_RETURN_IF_ERROR(cudaDriverGetVersion(&driver));
    if (driver == 0) return false;
  }
  SKEIN_RETURN_IF_ERROR(CudaStatus(code, "cudaGetDeviceCount"));
  return count > 0;
}

int32_t Multiprocessors() { return Attribute(cudaDevAttrMultiProcessorCount); }

double MemoryPeak() {
  constexpr double kEdges = 2;  // of a clock, on each of which a bit passes
  return kEdges * 1e3 * Attribute(cudaDevAttrMemoryClockRate) *
         Attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
}

double ProductPeak() {
  // Multiply-adds of a multiprocessor, a clock: an H100's, an A100's, and those of 8.6 and 8.9.
  const int32_t major = Attribute(cudaDevAttrComputeCapabilityMajor);
  const int32_t minor = Attribute(cudaDevAttrComputeCapabilityMinor);
  const double multiplies = major >= 9 ? 2048 : minor == 0 ? 1024 : 512;
  return 2 * multiplies * 1e3 * Attribute(cudaDevAttrClockRate) * Multiprocessors();
}

absl::StatusOr<int64_t> FreeMemoryBytes() {
  void* const nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  auto* const init = FunctionOf<int()>(nvml, "nvmlInit_v2");
  auto* const find = FunctionOf<int(const char*, void**)>(nvml, "nvmlDeviceGetHandleByPciBusId_v2");
  auto* const read = FunctionOf<int(void*, NvmlMemory*)>(nvml, "nvmlDeviceGetMemoryInfo");
  char bus_id[32] = {};
  SKEIN_CUDA_RETURN_IF_ERROR(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), 0));
  void* device = nullptr;
  NvmlMemory memory;
  if (init != nullptr && find != nullptr && read != nullptr && init() == 0 &&
      find(bus_id, &device) == 0 && read(device, &memory) == 0) {
    return static_cast<int64_t>(memory.free);
  }
  std::printf("no NVML: CUDA tells what is free\n");
  size_t free = 0;
  size_t total = 0;
  SKEIN_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

DeviceBytes::DeviceBytes(int64_t bytes) : bytes_(bytes) {
  // A byte where nothing is asked for: kernels get a valid pointer.
  REQUIRE_CUDA(cudaMalloc(&data_, static_cast<size_t>(bytes > 0 ? bytes : 1)));
  Poison();
}

DeviceBytes::~DeviceBytes() {
  if (data_ != nullptr) cudaFree(data_);
}

void DeviceBytes::Poison() {
  REQUIRE_CUDA(cudaMemset(data_, 0xff, static_cast<size_t>(bytes_)));
  REQUIRE_CUDA(cudaDeviceSynchronize());
}

void DeviceBytes::Upload(const void* from, int64_t bytes) {
  if (bytes > bytes_) Require(absl::OutOfRangeError("upload"));
  REQUIRE_CUDA(cudaMemcpy(data_, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
  // A copy from pageable memory may return earlier, and streams of tests do not wait for it.
  REQUIRE_CUDA(cudaDeviceSynchronize());
}

void DeviceBytes::Download(void* to, int64_t bytes) const {
  if (bytes > bytes_) Require(absl::OutOfRangeError("download"));
  REQUIRE_CUDA(cudaDeviceSynchronize());
  REQUIRE_CUDA(cudaMemcpy(to, data_, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost));
}

DeviceBytes Encoded(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> stored(
      static_cast<size_t>(DTypeBytes(dtype, static_cast<int64_t>(values.size()))));
  ConvertFromFloat(dtype, values.data(), static_cast<int64_t>(values.size()), stored.data());
  DeviceBytes memory(static_cast<int64_t>(stored.size()));
  memory.Upload(stored.data(), memory.bytes());
  return memory;
}

std::vector<float> Decoded(DType dtype, const DeviceBytes& memory) {
  std::vector<std::byte> stored(static_cast<size_t>(memory.bytes()));
  memory.Download(stored.data(), memory.bytes());
  const int64_t count = memory.bytes() / BlockBytes(dtype);
  std::vector<float> values(static_cast<size_t>(count));
  ConvertToFloat(dtype, stored.data(), count, values.data());
  return values;
}

std::vector<float> Rounded(DType dtype, std::vector<float> values) {
  if (dtype == DType::kF32) return values;
  std::vector<uint16_t> kept(values.size());
  const auto count = static_cast<int64_t>(values.size());
  ConvertFromFloat(dtype, values.data(), count, kept.data());
  ConvertToFloat(dtype, kept.data(), count, values.data());
  return values;
}

double UnitRoundoff(DType dtype) {
  if (dtype == DType::kF32) return 0x1p-24;
  return dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
}

double LeastError(DType dtype) { return dtype == DType::kF16 ? 0x1p-25 : 0x1p-133; }

std::vector<float> RandomValues(uint32_t seed, int64_t count, DType dtype, float scale) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(generator);
  return Rounded(dtype, std::move(values));
}

OwnStream::OwnStream() {
  cudaStream_t stream = nullptr;
  REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  stream_.handle = stream;
}

OwnStream::~OwnStream() { cudaStreamDestroy(CudaStream(stream_)); }

absl::Status OwnStream::Finish() const {
  SKEIN_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(CudaStream(stream_)));
  return absl::OkStatus();
}

}  // namespace skein::kernels::cuda

#include "kernels/cuda/fake_cuda.h"

#include <cstdlib>
#include <cstring>

namespace skein::kernels::cuda {

FakeCuda& fake_cuda() {
  static FakeCuda fake;
  return fake;
}

namespace {

cudaError_t CodeOf(const char* function) {
  const auto code = fake_cuda().codes.find(function);
  return code == fake_cuda().codes.end() ? cudaSuccess : code->second;
}

}  // namespace
}  // namespace skein::kernels::cuda

using skein::kernels::cuda::CodeOf;
using skein::kernels::cuda::fake_cuda;

extern "C" {

const char* cudaGetErrorName(cudaError_t code) {
  switch (code) {
    case cudaErrorECCUncorrectable:
      return "cudaErrorECCUncorrectable";
    case cudaErrorHardwareStackError:
      return "cudaErrorHardwareStackError";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorAssert:
      return "cudaErrorAssert";
    case cudaErrorDevicesUnavailable:
      return "cudaErrorDevicesUnavailable";
    default:
      return "cudaErrorAnother";
  }
}
const char* cudaGetErrorString(cudaError_t) { return "CUDA's words"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaSetDevice(int) { return CodeOf("cudaSetDevice"); }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return CodeOf("cudaGetDeviceCount");
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = fake_cuda().driver;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strncpy(properties->name, fake_cuda().name.c_str(), sizeof(properties->name) - 1);
  properties->major = fake_cuda().major;
  properties->sharedMemPerBlockOptin = fake_cuda().shared_bytes;
  for (int i = 0; i < 16; ++i) properties->uuid.bytes[i] = static_cast<char>(17 * i);
  return CodeOf("cudaGetDeviceProperties");
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int) {
  std::strncpy(id, "0000:9A:00.0", static_cast<size_t>(size));
  return CodeOf("cudaDeviceGetPCIBusId");
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = fake_cuda().free;
  *total = fake_cuda().total;
  return CodeOf("cudaMemGetInfo");
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  *data = std::calloc(1, bytes);
  return CodeOf("cudaMalloc");
}
cudaError_t cudaFree(void* data) {
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemset(void*, int, size_t) { return CodeOf("cudaMemset"); }
cudaError_t cudaDeviceSynchronize() { return CodeOf("cudaDeviceSynchronize"); }
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned int) {
  *data = std::calloc(1, bytes);
  return CodeOf("cudaHostAlloc");
}
cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned int) { return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return CodeOf("cudaStreamSynchronize"); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned int) { return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return cudaSuccess; }
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {  // NOLINT
  return CodeOf("cudaGraphInstantiate");
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return CodeOf("cudaGraphUpload"); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return CodeOf("cudaGraphLaunch"); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned int) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return CodeOf("cudaEventRecord"); }
cudaError_t cudaEventQuery(cudaEvent_t) {
  if (fake_cuda().looks > 0) {
    --fake_cuda().looks;
    return cudaErrorNotReady;
  }
  return CodeOf("cudaEventQuery");
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return CodeOf("cudaEventSynchronize"); }
cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memcpy(to, from, bytes);
  return CodeOf("cudaMemcpyAsync");
}

}  // extern "C"

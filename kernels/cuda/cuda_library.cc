#include "kernels/cuda/cuda_library.h"

#include "kernels/cuda/build_identity.h"

extern "C" __attribute__((visibility("default"))) const skein::kernels::cuda::CudaLibrary*
skein_cuda_library_1() {
  namespace cuda = skein::kernels::cuda;
  static constexpr cuda::CudaFunctions kFunctions = {
      .list_devices = cuda::ListCudaDevices,
      .describe_device = cuda::DescribeUsableCudaDevice,
      .make_backend = cuda::MakeCudaBackend,
      .make_copies = cuda::MakeCudaCopies,
      .make_events = cuda::MakeCudaEvents,
      .make_peer_sums = cuda::MakeCudaPeerSums,
      .make_timer = cuda::MakeCudaTimer,
      .measure_rates = cuda::MeasureCudaRates};
  static constexpr cuda::CudaLibrary kLibrary = {.build = kBuildIdentity, .functions = &kFunctions};
  return &kLibrary;
}

// A libskein_cuda.so that has 3 GPUs of which none can be used, for tests. Defines say what is
// wrong with it.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/build_identity.h"
#include "kernels/cuda/cuda_library.h"

extern "C" void skein_absent();  // in a library that is not there

namespace skein::kernels::cuda {
namespace {

absl::StatusOr<std::vector<std::string>> List() {
#ifdef SKEIN_FAKE_NEEDS
  skein_absent();
#endif
#ifdef SKEIN_FAKE_REMARKS
  std::puts("a remark of a library that sees no GPU");
  return std::vector<std::string>();
#endif
  return std::vector<std::string>{"a", "b", "c"};
}
// Tells of the variable by which CUDA numbers GPUs, too, where it is set.
absl::StatusOr<CudaDevice> Describe(int device) {
  std::string says = "fake GPU " + std::to_string(device) + " has no kernels";
  if (const char* order = std::getenv("CUDA_DEVICE_ORDER")) {
    says += std::string(", CUDA_DEVICE_ORDER=") + order;
  }
  absl::Status status = absl::FailedPreconditionError(says);
  status.SetPayload("skein/fake", absl::Cord("a payload"));
  return status;
}
absl::StatusOr<std::unique_ptr<Backend>> Make(const CudaOptions& options) {
  return Describe(options.device).status();
}
absl::StatusOr<std::unique_ptr<DeviceCopies>> Copies(int device) {
  return Describe(device).status();
}
absl::StatusOr<std::unique_ptr<DeviceEvents>> Events(int device) {
  return Describe(device).status();
}
absl::StatusOr<std::unique_ptr<PeerSums>> Sums(int device, int, int) {
  return Describe(device).status();
}
absl::StatusOr<std::unique_ptr<DeviceTimer>> Timer(int device) { return Describe(device).status(); }
absl::StatusOr<CudaRates> Measure(int) {
  return CudaRates{.read_bytes_per_s = 5, .flops_per_s = 7};
}

}  // namespace
}  // namespace skein::kernels::cuda

namespace cuda = skein::kernels::cuda;

#ifndef SKEIN_FAKE_BUILD
#define SKEIN_FAKE_BUILD kBuildIdentity
#endif
#ifndef SKEIN_FAKE_ENTRY
#define SKEIN_FAKE_ENTRY skein_cuda_library_1
#endif

extern "C" const cuda::CudaLibrary* SKEIN_FAKE_ENTRY() {
  static constexpr cuda::CudaFunctions kFunctions = {.list_devices = cuda::List,
                                                     .describe_device = cuda::Describe,
                                                     .make_backend = cuda::Make,
                                                     .make_copies = cuda::Copies,
                                                     .make_events = cuda::Events,
                                                     .make_peer_sums = cuda::Sums,
                                                     .make_timer = cuda::Timer,
                                                     .measure_rates = cuda::Measure};
  static constexpr cuda::CudaLibrary kLibrary = {.build = SKEIN_FAKE_BUILD,
                                                 .functions = &kFunctions};
  return &kLibrary;
}

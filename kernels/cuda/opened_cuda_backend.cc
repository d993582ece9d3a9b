// What programs call: opens libskein_cuda.so at the first call, and calls it.
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "base/status_macros.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_copies.h"
#include "kernels/cuda/cuda_events.h"
#include "kernels/cuda/cuda_library.h"
#include "kernels/cuda/cuda_peer_sums.h"
#include "kernels/cuda/cuda_rates.h"
#include "kernels/cuda/cuda_timer.h"
#include "kernels/cuda/open_library.h"

namespace skein::kernels {
namespace {

const absl::StatusOr<const cuda::CudaFunctions*>& Opened() {
  // A library is opened once a process, and never closed: its threads and devices are in use.
  static const auto* const opened = [] {
    std::error_code unknown;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", unknown);
    return new absl::StatusOr<const cuda::CudaFunctions*>(
        cuda::OpenCudaLibrary(cuda::CudaLibraryPlaces(program.parent_path().string())));
  }();
  return *opened;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListCudaDevices() {
  SKEIN_ASSIGN_OR_RETURN(const auto* cuda, Opened());
  return cuda->list_devices();
}

absl::StatusOr<CudaDevice> DescribeCudaDevice(int device) {
  SKEIN_ASSIGN_OR_RETURN(const auto* cuda, Opened());
  return cuda->describe_device(device);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const auto* cuda, Opened());
  return cuda->make_backend(options);
}

absl::StatusOr<std::unique_ptr<DeviceCopies>> MakeCudaCopies(int device) {
  SKEIN_ASSIGN_OR_RETURN(const auto* cuda, Opened());
  return cuda->make_copies(device);
}

absl::StatusOr<std::unique_ptr<DeviceEvents>> MakeCudaEvents(int device) {
  SKEIN_ASSIGN_OR_RETURN(const auto* cuda, Opened());
  return cuda->make_events(device);
}

absl::StatusOr<std::unique_ptr<PeerSums>> MakeCudaPeerSums(int device, int rank, int ranks) {
  SKEIN_ASSIGN_OR_RETURN(const auto* cuda, Opened());
  return cuda->make_peer_sums(device, rank, ranks);
}

absl::StatusOr<std::unique_ptr<DeviceTimer>> MakeCudaTimer(int device) {
  SKEIN_ASSIGN_OR_RETURN(const auto* cuda, Opened());
  return cuda->make_timer(device);
}

absl::StatusOr<CudaRates> MeasureCudaRates(int device) {
  SKEIN_ASSIGN_OR_RETURN(const auto* cuda, Opened());
  return cuda->measure_rates(device);
}

}  // namespace skein::kernels

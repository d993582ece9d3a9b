// The boundary of libskein_cuda.so: what needs CUDA, opened by a program at run time.
//
// C++ objects cross it. Both sides are made by one compiler of the same sources (kBuildIdentity),
// and share libstdc++ and abseil, which are shared libraries themselves. Each has its own copy of
// what else it uses; no type that one side made is looked for by dynamic_cast on the other one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/device_copies.h"
#include "base/device_events.h"
#include "base/device_timer.h"
#include "base/peer_sums.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_copies.h"
#include "kernels/cuda/cuda_events.h"
#include "kernels/cuda/cuda_peer_sums.h"
#include "kernels/cuda/cuda_rates.h"
#include "kernels/cuda/cuda_timer.h"
#include "kernels/ops/backend.h"

namespace skein::kernels::cuda {

// As in the headers of programs, inside the library.
absl::StatusOr<std::vector<std::string>> ListCudaDevices();
absl::StatusOr<CudaDevice> DescribeCudaDevice(int device);
// FailedPrecondition, too, where this build has no kernels for it.
absl::StatusOr<CudaDevice> DescribeUsableCudaDevice(int device);
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaOptions& options);
absl::StatusOr<std::unique_ptr<DeviceCopies>> MakeCudaCopies(int device);
absl::StatusOr<std::unique_ptr<DeviceEvents>> MakeCudaEvents(int device);
absl::StatusOr<std::unique_ptr<PeerSums>> MakeCudaPeerSums(int device, int rank, int ranks);
absl::StatusOr<std::unique_ptr<DeviceTimer>> MakeCudaTimer(int device);
absl::StatusOr<CudaRates> MeasureCudaRates(int device);

struct CudaFunctions {
  absl::StatusOr<std::vector<std::string>> (*list_devices)();
  absl::StatusOr<CudaDevice> (*describe_device)(int device);
  absl::StatusOr<std::unique_ptr<Backend>> (*make_backend)(const CudaOptions& options);
  absl::StatusOr<std::unique_ptr<DeviceCopies>> (*make_copies)(int device);
  absl::StatusOr<std::unique_ptr<DeviceEvents>> (*make_events)(int device);
  absl::StatusOr<std::unique_ptr<PeerSums>> (*make_peer_sums)(int device, int rank, int ranks);
  absl::StatusOr<std::unique_ptr<DeviceTimer>> (*make_timer)(int device);
  absl::StatusOr<CudaRates> (*measure_rates)(int device);
};

// Plain C, to be read before anything is known of the library.
struct CudaLibrary {
  const char* build;               // kBuildIdentity
  const CudaFunctions* functions;  // to be read where `build` is one's own
};

// The name of the one function that the library gives, a CudaLibraryEntry. A CudaLibrary of other
// fields has another number.
inline constexpr char kCudaLibraryEntry[] = "skein_cuda_library_1";
using CudaLibraryEntry = const CudaLibrary*();

}  // namespace skein::kernels::cuda

// What a build without CUDA has in the place of cuda_backend.cc.
#include "absl/status/status.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_copies.h"
#include "kernels/cuda/cuda_rates.h"

namespace skein::kernels {
namespace {

absl::Status NoCuda() {
  return absl::UnimplementedError(
      "this worker was built without CUDA: build it with --config=cuda, or use --device=cpu");
}

}  // namespace

absl::StatusOr<int> CountCudaDevices() { return NoCuda(); }
absl::StatusOr<CudaDevice> DescribeCudaDevice(int) { return NoCuda(); }
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaOptions&) { return NoCuda(); }

absl::StatusOr<std::unique_ptr<DeviceCopies>> MakeCudaCopies(int) { return NoCuda(); }
absl::StatusOr<CudaRates> MeasureCudaRates(int) { return NoCuda(); }

}  // namespace skein::kernels

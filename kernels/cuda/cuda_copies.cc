#include "kernels/cuda/cuda_copies.h"

#include <cuda_runtime_api.h>

#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "base/status_macros.h"
#include "kernels/cuda/cuda_library.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/resources.h"

namespace skein::kernels::cuda {
namespace {

class CudaCopies final : public DeviceCopies {
 public:
  explicit CudaCopies(int device) : device_(device) {}

  absl::StatusOr<absl::Span<std::byte>> Buffer(int64_t bytes) override {
    SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_));
    if (bytes > buffer_.bytes()) {
      SKEIN_ASSIGN_OR_RETURN(buffer_, PinnedMemory::Allocate(bytes, "exchanged activations"));
    }
    return absl::MakeSpan(buffer_.data(), static_cast<size_t>(bytes));
  }
  absl::Status ToHost(ConstView from, std::byte* to, Stream stream,
                      KeepWaiting keep_waiting) override {
    return Copy(to, from.data, from.bytes(), cudaMemcpyDeviceToHost, stream, keep_waiting);
  }
  absl::Status ToDevice(const std::byte* from, View to, Stream stream,
                        KeepWaiting keep_waiting) override {
    return Copy(to.data, from, to.bytes(), cudaMemcpyHostToDevice, stream, keep_waiting);
  }

 private:
  absl::Status Copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind, Stream stream,
                    KeepWaiting keep_waiting) {
    SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_));
    SKEIN_CUDA_RETURN_IF_ERROR(
        cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, CudaStream(stream)));
    if (!copied_.has_value()) {
      SKEIN_ASSIGN_OR_RETURN(copied_, OwnedEvent::Create());
    }
    SKEIN_RETURN_IF_ERROR(copied_->Record(stream));
    return copied_->Await(absl::InfiniteFuture(), keep_waiting).status();
  }

  const int device_;
  PinnedMemory buffer_;
  std::optional<OwnedEvent> copied_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceCopies>> MakeCudaCopies(int device) {
  return std::make_unique<CudaCopies>(device);
}

}  // namespace skein::kernels::cuda

#include "kernels/cuda/cuda_timer.h"

#include <cuda_runtime_api.h>

#include "absl/time/time.h"
#include "base/status_macros.h"
#include "kernels/cuda/cuda_library.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/resources.h"

namespace skein::kernels::cuda {
namespace {

class CudaTimer final : public DeviceTimer {
 public:
  explicit CudaTimer(int device) : device_(device) {}

  absl::Status Init() {
    SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_));
    SKEIN_ASSIGN_OR_RETURN(stream_, OwnedStream::Create());
    SKEIN_ASSIGN_OR_RETURN(begin_, OwnedEvent::Create(/*timed=*/true));
    SKEIN_ASSIGN_OR_RETURN(end_, OwnedEvent::Create(/*timed=*/true));
    return absl::OkStatus();
  }

  absl::StatusOr<void*> Memory(int64_t bytes) override {
    SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_));
    if (memory_.bytes() < bytes) {
      SKEIN_ASSIGN_OR_RETURN(memory_, DeviceMemory::Allocate(bytes, "what is timed"));
    }
    return memory_.data();
  }

  Stream stream() const override { return stream_.get(); }

  absl::Status Capture(absl::FunctionRef<absl::Status()> give) override {
    SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_));
    SKEIN_ASSIGN_OR_RETURN(graph_, OwnedGraph::Capture(stream(), give));
    return absl::OkStatus();
  }

  absl::StatusOr<double> Replay(absl::FunctionRef<absl::Status()> between) override {
    SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_));
    SKEIN_RETURN_IF_ERROR(begin_.Record(stream()));
    SKEIN_RETURN_IF_ERROR(graph_.Launch(stream()));
    SKEIN_RETURN_IF_ERROR(end_.Record(stream()));
    SKEIN_RETURN_IF_ERROR(end_.Await(absl::InfiniteFuture(), between).status());
    SKEIN_ASSIGN_OR_RETURN(const float milliseconds, end_.MillisecondsSince(begin_));
    return milliseconds / 1e3;
  }

 private:
  const int device_;
  DeviceMemory memory_;
  OwnedStream stream_;
  OwnedEvent begin_;
  OwnedEvent end_;
  OwnedGraph graph_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceTimer>> MakeCudaTimer(int device) {
  auto timer = std::make_unique<CudaTimer>(device);
  SKEIN_RETURN_IF_ERROR(timer->Init());
  return timer;
}

}  // namespace skein::kernels::cuda

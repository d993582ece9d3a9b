#include "kernels/cuda/cuda_events.h"

#include <cuda_runtime_api.h>

#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "kernels/cuda/cuda_library.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/resources.h"

namespace skein::kernels::cuda {
namespace {

class CudaEvents final : public DeviceEvents {
 public:
  explicit CudaEvents(int device) : device_(device) {}

  absl::Status Select() override { return CudaStatus(cudaSetDevice(device_), "cudaSetDevice"); }

  absl::StatusOr<int> Record(Stream stream) override {
    SKEIN_RETURN_IF_ERROR(Select());
    if (free_.empty()) {
      SKEIN_ASSIGN_OR_RETURN(OwnedEvent event, OwnedEvent::Create());
      free_.push_back(static_cast<int>(events_.size()));
      events_.push_back(std::move(event));
    }
    const int event = free_.back();
    SKEIN_RETURN_IF_ERROR(events_[event].Record(stream));
    free_.pop_back();
    return event;
  }

  absl::StatusOr<bool> Done(int event) override {
    SKEIN_RETURN_IF_ERROR(Select());
    SKEIN_ASSIGN_OR_RETURN(const bool done, events_[event].Done());
    if (done) free_.push_back(event);
    return done;
  }

 private:
  const int device_;
  std::vector<OwnedEvent> events_;
  std::vector<int> free_;  // that no point has
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceEvents>> MakeCudaEvents(int device) {
  return std::make_unique<CudaEvents>(device);
}

}  // namespace skein::kernels::cuda

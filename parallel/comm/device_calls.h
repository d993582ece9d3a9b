// The calls of a group that streams have and the device may not have made yet. The host waits in
// none of them, so that this is what tells where a rank hangs.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/device_events.h"
#include "base/mutex.h"
#include "base/stream.h"
#include "parallel/comm/call.h"
#include "parallel/comm/operation_tracker.h"
#include "parallel/comm/patience.h"

namespace skein::comm {

struct DeviceCall {
  Call call;
  // A graph makes several collectives, from `call`'s number to this one, and does not tell in which
  // of them it is.
  int64_t last = 0;
  std::optional<int64_t> step;
  absl::Duration timeout;
};

// Any thread. Calls end in the order in which they were added.
class DeviceCalls final : public DeviceReport {
 public:
  explicit DeviceCalls(std::shared_ptr<DeviceEvents> events) : events_(std::move(events)) {}

  // `stream` has it, and nothing else since.
  absl::Status Add(const DeviceCall& call, Stream stream);
  // Returns the oldest call under way where it has not ended within its time-out, which counts from
  // when the call before it was seen to have ended. Errors are those of the device.
  absl::StatusOr<std::optional<DeviceCall>> Late() const;

  void Look() const override;
  std::optional<Call> InProgress() const override;
  int64_t entered() const override;
  std::optional<int64_t> step() const override;

 private:
  struct Pending {
    DeviceCall call;
    int event = 0;
    SteadyTime since;
  };
  absl::Status failed() const;
  // The event of the oldest call, as far as no call has failed.
  std::optional<int> Oldest() const;

  // Of who asks the device, which may take its time to answer: nobody who only tells waits for it.
  mutable Mutex device_mutex_;
  const std::shared_ptr<DeviceEvents> events_ ABSL_PT_GUARDED_BY(device_mutex_);
  mutable Mutex mutex_ ABSL_ACQUIRED_AFTER(device_mutex_);
  mutable std::deque<Pending> pending_ ABSL_GUARDED_BY(mutex_);
  mutable absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  int64_t entered_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace skein::comm

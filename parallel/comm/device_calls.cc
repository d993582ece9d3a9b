#include "parallel/comm/device_calls.h"

#include <algorithm>
#include <chrono>

#include "base/status_macros.h"

namespace skein::comm {
namespace {

SteadyTime Now() { return std::chrono::steady_clock::now(); }

}  // namespace

absl::Status DeviceCalls::Add(const DeviceCall& call, Stream stream) {
  MutexLock lock(&mutex_);
  SKEIN_RETURN_IF_ERROR(failed_);
  SKEIN_ASSIGN_OR_RETURN(const int event, events_->Record(stream));
  pending_.push_back({call, event, Now()});
  if (!IsMessage(call.call.operation)) entered_ = std::max(entered_, call.last);
  return absl::OkStatus();
}

void DeviceCalls::Look() const {
  while (failed_.ok() && !pending_.empty()) {
    const absl::StatusOr<bool> done = events_->Done(pending_.front().event);
    failed_ = done.status();
    if (!done.ok() || !*done) return;
    pending_.pop_front();
    if (!pending_.empty()) pending_.front().since = Now();
  }
}

absl::StatusOr<std::optional<DeviceCall>> DeviceCalls::Late() const {
  MutexLock lock(&mutex_);
  Look();
  SKEIN_RETURN_IF_ERROR(failed_);
  if (pending_.empty()) return std::nullopt;
  const Pending& oldest = pending_.front();
  if (absl::FromChrono(Now() - oldest.since) <= oldest.call.timeout) return std::nullopt;
  return oldest.call;
}

std::optional<Call> DeviceCalls::InProgress() const {
  MutexLock lock(&mutex_);
  Look();
  if (pending_.empty()) return std::nullopt;
  return pending_.front().call.call;
}

int64_t DeviceCalls::entered() const {
  MutexLock lock(&mutex_);
  return entered_;
}

std::optional<int64_t> DeviceCalls::step() const {
  MutexLock lock(&mutex_);
  return pending_.empty() ? std::nullopt : pending_.front().call.step;
}

}  // namespace skein::comm

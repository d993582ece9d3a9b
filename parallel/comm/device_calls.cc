#include "parallel/comm/device_calls.h"

#include <algorithm>
#include <chrono>

#include "base/status_macros.h"

namespace skein::comm {
namespace {

SteadyTime Now() { return std::chrono::steady_clock::now(); }

}  // namespace

absl::Status DeviceCalls::failed() const {
  MutexLock lock(&mutex_);
  return failed_;
}

std::optional<int> DeviceCalls::Oldest() const {
  MutexLock lock(&mutex_);
  if (!failed_.ok() || pending_.empty()) return std::nullopt;
  return pending_.front().event;
}

absl::Status DeviceCalls::Add(const DeviceCall& call, Stream stream) {
  MutexLock device(&device_mutex_);
  SKEIN_RETURN_IF_ERROR(failed());
  SKEIN_ASSIGN_OR_RETURN(const int event, events_->Record(stream));
  MutexLock lock(&mutex_);
  pending_.push_back({call, event, Now()});
  if (!IsMessage(call.call.operation)) entered_ = std::max(entered_, call.last);
  return absl::OkStatus();
}

void DeviceCalls::Look() const {
  MutexLock device(&device_mutex_);
  while (const std::optional<int> event = Oldest()) {
    const absl::StatusOr<bool> done = events_->Done(*event);
    MutexLock lock(&mutex_);
    failed_ = done.status();
    if (!done.ok() || !*done) return;
    pending_.pop_front();
    if (!pending_.empty()) pending_.front().since = Now();
  }
}

absl::StatusOr<std::optional<DeviceCall>> DeviceCalls::Late() const {
  Look();
  MutexLock lock(&mutex_);
  SKEIN_RETURN_IF_ERROR(failed_);
  if (pending_.empty()) return std::nullopt;
  const Pending& oldest = pending_.front();
  if (absl::FromChrono(Now() - oldest.since) <= oldest.call.timeout) return std::nullopt;
  return oldest.call;
}

std::optional<Call> DeviceCalls::InProgress() const {
  MutexLock lock(&mutex_);
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

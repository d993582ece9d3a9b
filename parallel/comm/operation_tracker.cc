#include "parallel/comm/operation_tracker.h"

#include <algorithm>

namespace skein::comm {
namespace {

// A call in one word: whether it is in progress, the operation, the peer, the number. At 20,000
// calls a second numbers last for 27 years.
constexpr uint64_t kInProgress = uint64_t{1} << 63;
constexpr int kOperationShift = 60;
constexpr int kPeerShift = 44;
constexpr uint64_t kNumberMask = (uint64_t{1} << kPeerShift) - 1;

uint64_t Pack(const Call& call) {
  return kInProgress | static_cast<uint64_t>(call.operation) << kOperationShift |
         static_cast<uint64_t>(call.peer & 0xffff) << kPeerShift |
         (static_cast<uint64_t>(call.number) & kNumberMask);
}

Call Unpack(uint64_t word) {
  return {.operation = static_cast<Operation>((word >> kOperationShift) & 7),
          .peer = static_cast<int32_t>((word >> kPeerShift) & 0xffff),
          .number = static_cast<int64_t>(word & kNumberMask)};
}

}  // namespace

std::optional<int64_t> OperationTracker::StepOrNone(int64_t step) {
  return step == kNoStep ? std::nullopt : std::optional(step);
}

// ---- A group ----

OperationTracker::Group::Line& OperationTracker::Group::LineOf(Operation operation) {
  return IsMessage(operation) ? message_ : collective_;
}

void OperationTracker::Group::Enter(const Call& call) {
  Line& line = LineOf(call.operation);
  const int64_t now = Pulse::NowNs();
  line.since_ns.store(now, std::memory_order_relaxed);
  line.step.store(step_, std::memory_order_relaxed);
  line.call.store(Pack(call), std::memory_order_release);
  clock_->Enter(now);
}

void OperationTracker::Group::Leave(Operation operation) {
  Line& line = LineOf(operation);
  clock_->Leave(Pulse::NowNs());
  line.call.store(line.call.load(std::memory_order_relaxed) & ~kInProgress,
                  std::memory_order_release);
}

OperationInProgress OperationTracker::Group::Describe(Call call, absl::Duration elapsed,
                                                      absl::Duration still) const {
  OperationInProgress out = {.group = name_, .elapsed = elapsed, .still = still};
  const int peer = ranks_[call.peer];
  if (IsMessage(call.operation)) {
    out.others = {peer};
  } else {
    for (int rank : ranks_) {
      if (rank != ranks_[self_]) out.others.push_back(rank);
    }
  }
  call.peer = peer;
  out.call = call;
  return out;
}

std::optional<OperationInProgress> OperationTracker::Group::InProgress() const {
  const int64_t now = Pulse::NowNs();  // first: a call is never said to last longer than it does
  const auto since = [now](int64_t then) {
    return absl::Nanoseconds(std::max<int64_t>(0, now - then));
  };
  for (const Line* line : {&collective_, &message_}) {
    const uint64_t word = line->call.load(std::memory_order_acquire);
    if ((word & kInProgress) == 0) continue;
    const int64_t begin = line->since_ns.load(std::memory_order_relaxed);
    OperationInProgress out =
        Describe(Unpack(word), since(begin), since(std::max(begin, pulse_.last_ns())));
    out.step = StepOrNone(line->step.load(std::memory_order_relaxed));
    return out;
  }
  return OnDevice();
}

std::optional<OperationInProgress> OperationTracker::Group::OnDevice() const {
  const std::shared_ptr<const DeviceReport> device = Device();
  if (device == nullptr) return std::nullopt;
  const std::optional<Call> call = device->InProgress();
  if (!call.has_value()) return std::nullopt;
  const int64_t now = Pulse::NowNs();
  MutexLock lock(&mutex_);
  if (seen_number_ != call->number) {
    seen_number_ = call->number;
    seen_ns_ = now;
  }
  OperationInProgress out =
      Describe(*call, absl::Nanoseconds(now - seen_ns_), absl::ZeroDuration());
  out.step = device->step();
  return out;
}

void OperationTracker::Group::LookAtDevice() const {
  if (const std::shared_ptr<const DeviceReport> device = Device()) device->Look();
}

int64_t OperationTracker::Group::entered() const {
  const int64_t on_host = Unpack(collective_.call.load(std::memory_order_acquire)).number;
  const std::shared_ptr<const DeviceReport> device = Device();
  return device == nullptr ? on_host : std::max(on_host, device->entered());
}

// ---- All groups ----

OperationTracker::Group* OperationTracker::AddGroup(std::string name, std::vector<int> ranks,
                                                    int self) {
  MutexLock lock(&mutex_);
  groups_.push_back(std::make_unique<Group>(std::move(name), std::move(ranks), self, &clock_));
  return groups_.back().get();
}

void OperationTracker::BeginStep(int64_t step, absl::Duration deadline) {
  deadline_ns_.store(absl::ToInt64Nanoseconds(deadline), std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
  if (oldest_.load(std::memory_order_relaxed) == kNoStep) {
    oldest_.store(step, std::memory_order_relaxed);
    clock_.SetBusy(true, Pulse::NowNs());
  }
}

void OperationTracker::EndStep(std::optional<int64_t> next) {
  oldest_.store(next.value_or(kNoStep), std::memory_order_relaxed);
  if (next.has_value()) return;
  step_.store(kNoStep, std::memory_order_relaxed);
  clock_.SetBusy(false, Pulse::NowNs());
}

void OperationTracker::LookAtDevices() const {
  std::vector<const Group*> groups;  // nobody waits for this look
  {
    MutexLock lock(&mutex_);
    for (const auto& group : groups_) groups.push_back(group.get());
  }
  for (const Group* const group : groups) group->LookAtDevice();
}

Progress OperationTracker::Read() const {
  Progress progress;
  MutexLock lock(&mutex_);
  for (const auto& group : groups_) {
    std::optional<OperationInProgress> operation = group->InProgress();
    if (operation.has_value() &&
        (!progress.operation.has_value() || operation->elapsed > progress.operation->elapsed)) {
      progress.operation = std::move(operation);
    }
    progress.entered[group->name()] = group->entered();
  }
  if (progress.operation.has_value()) {
    // The host's own calls are those of the step that it has begun last.
    progress.step = progress.operation->step.has_value()
                        ? progress.operation->step
                        : StepOrNone(step_.load(std::memory_order_relaxed));
  } else {
    progress.step = StepOrNone(oldest_.load(std::memory_order_relaxed));
  }
  const int64_t deadline = deadline_ns_.load(std::memory_order_relaxed);
  progress.deadline = deadline == absl::ToInt64Nanoseconds(absl::InfiniteDuration())
                          ? absl::InfiniteDuration()
                          : absl::Nanoseconds(deadline);
  return progress;
}

}  // namespace skein::comm

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

// ---- A group ----

OperationTracker::Group::Line& OperationTracker::Group::LineOf(Operation operation) {
  return IsMessage(operation) ? message_ : collective_;
}

void OperationTracker::Group::Enter(const Call& call) {
  Line& line = LineOf(call.operation);
  line.since_ns.store(Pulse::NowNs(), std::memory_order_relaxed);
  line.call.store(Pack(call), std::memory_order_release);
}

void OperationTracker::Group::Leave(Operation operation) {
  Line& line = LineOf(operation);
  line.call.store(line.call.load(std::memory_order_relaxed) & ~kInProgress,
                  std::memory_order_release);
}

std::optional<OperationInProgress> OperationTracker::Group::InProgress() const {
  const int64_t now = Pulse::NowNs();  // first: a call is never said to last longer than it does
  for (const Line* line : {&collective_, &message_}) {
    const uint64_t word = line->call.load(std::memory_order_acquire);
    if ((word & kInProgress) == 0) continue;
    const int64_t since = line->since_ns.load(std::memory_order_relaxed);
    const int64_t moved = std::max(since, pulse_.last_ns());
    OperationInProgress out = {.group = name_,
                               .call = Unpack(word),
                               .elapsed = absl::Nanoseconds(std::max<int64_t>(0, now - since)),
                               .still = absl::Nanoseconds(std::max<int64_t>(0, now - moved))};
    const int peer = ranks_[out.call.peer];
    if (IsMessage(out.call.operation)) {
      out.others = {peer};
    } else {
      for (int rank : ranks_) {
        if (rank != ranks_[self_]) out.others.push_back(rank);
      }
    }
    out.call.peer = peer;
    return out;
  }
  return std::nullopt;
}

int64_t OperationTracker::Group::entered() const {
  return Unpack(collective_.call.load(std::memory_order_acquire)).number;
}

// ---- All groups ----

OperationTracker::Group* OperationTracker::AddGroup(std::string name, std::vector<int> ranks,
                                                    int self) {
  MutexLock lock(&mutex_);
  groups_.push_back(std::make_unique<Group>(std::move(name), std::move(ranks), self));
  return groups_.back().get();
}

void OperationTracker::BeginStep(int64_t step, absl::Duration deadline) {
  deadline_ns_.store(absl::ToInt64Nanoseconds(deadline), std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
}

void OperationTracker::EndStep() { step_.store(kNoStep, std::memory_order_relaxed); }

Progress OperationTracker::Read() const {
  Progress progress;
  MutexLock lock(&mutex_);
  for (const auto& group : groups_) {
    std::optional<OperationInProgress> operation = group->InProgress();
    if (operation.has_value() &&
        (!progress.operation.has_value() || operation->elapsed > progress.operation->elapsed)) {
      progress.operation = std::move(operation);
    }
    progress.entered.emplace_back(group->name(), group->entered());
  }
  const int64_t step = step_.load(std::memory_order_relaxed);
  if (step != kNoStep) progress.step = step;
  const int64_t deadline = deadline_ns_.load(std::memory_order_relaxed);
  progress.deadline = deadline == absl::ToInt64Nanoseconds(absl::InfiniteDuration())
                          ? absl::InfiniteDuration()
                          : absl::Nanoseconds(deadline);
  return progress;
}

}  // namespace skein::comm

// The call between ranks that a rank is in, kept where another thread can read it at any time. The
// rank's heartbeats carry it, so that the coordinator, which hears all ranks, can tell who holds up
// the others.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "parallel/comm/call.h"
#include "parallel/comm/progress.h"
#include "parallel/comm/pulse.h"
#include "parallel/comm/rank_clock.h"
#include "parallel/comm/rank_times.h"

namespace skein::comm {

// A device that makes calls by itself, as a replayed graph does, tells where it is. Numbers go on
// from those of the host's calls.
class DeviceReport {
 public:
  virtual ~DeviceReport() = default;
  // Asks the device which calls have ended. It may take its time to answer, or never do.
  virtual void Look() const {}
  // The call that the device was in at the last look. Any thread, at any time, without asking it.
  virtual std::optional<Call> InProgress() const = 0;
  virtual int64_t entered() const = 0;  // the number of the last collective
  // The step that the call in progress belongs to; none: the one that the host has in hand.
  virtual std::optional<int64_t> step() const { return std::nullopt; }
};

// One rank's calls and steps. A call costs three atomic stores, two looks at the clock and two
// locks that nobody else wants; nobody waits for anybody. Groups may be added while others work.
class OperationTracker {
 public:
  class Group;

  // Adds a group, which the tracker owns. `ranks` are the members' ranks in the job, by rank in the
  // group; `self` is this process's rank in the group. A group has at most 65,536 ranks.
  Group* AddGroup(std::string name, std::vector<int> ranks, int self);

  // For the thread that carries out steps. Sets the step in hand, and how long a call in it may
  // take. Steps end in their order; `next` is the oldest one that is still under way.
  void BeginStep(int64_t step, absl::Duration deadline);
  void EndStep(std::optional<int64_t> next = std::nullopt);

  // From now on the rank's time counts: it is ready for steps, and has none.
  void StartTimes() { clock_.Start(Pulse::NowNs()); }
  // Where it went since; none before. Any thread.
  std::optional<RankTimes> Times() const { return clock_.Read(); }

  // Asks the devices that make calls by themselves how far they are: what Read() tells of them is
  // of the last such look, or of a wait's. A thread that may wait for a device calls it now and
  // then.
  void LookAtDevices() const;

  // Any thread may call it, at any time: it waits for nobody. Parts that change meanwhile may be of
  // two moments, such as a step that is newer than its call. A call is never said to last longer
  // than it does.
  Progress Read() const;

 private:
  static constexpr int64_t kNoStep = -1;
  static std::optional<int64_t> StepOrNone(int64_t step);

  std::atomic<int64_t> step_ = kNoStep;    // the last one that has begun
  std::atomic<int64_t> oldest_ = kNoStep;  // under way
  std::atomic<int64_t> deadline_ns_ = absl::ToInt64Nanoseconds(absl::InfiniteDuration());
  mutable RankClock clock_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Group>> groups_ ABSL_GUARDED_BY(mutex_);
};

// The calls of one group, published by the thread that makes them.
class OperationTracker::Group {
 public:
  // While it lives the call is in progress.
  class Entered {
   public:
    Entered(Group* group, const Call& call) : group_(group), operation_(call.operation) {
      group_->Enter(call);
    }
    ~Entered() { group_->Leave(operation_); }
    Entered(const Entered&) = delete;

   private:
    Group* const group_;
    const Operation operation_;
  };

  // While it lives a device is given the call in progress: for the host that is work of the step,
  // and no exchange. `group` may be null.
  class GivenToDevice {
   public:
    explicit GivenToDevice(Group* group) : group_(group) {
      if (group_ != nullptr) group_->clock_->Leave(Pulse::NowNs());
    }
    ~GivenToDevice() {
      if (group_ != nullptr) group_->clock_->Enter(Pulse::NowNs());
    }
    GivenToDevice(const GivenToDevice&) = delete;

   private:
    Group* const group_;
  };

  // `clock` outlives the group.
  Group(std::string name, std::vector<int> ranks, int self, RankClock* clock)
      : name_(std::move(name)), ranks_(std::move(ranks)), self_(self), clock_(clock) {}

  const std::string& name() const { return name_; }
  // The pulse that the group's calls beat while they wait.
  Pulse& pulse() { return pulse_; }
  // The rank's.
  RankClock* clock() { return clock_; }
  // Sets the report of a device that makes some of the group's calls by itself; null where there is
  // none.
  void set_device(std::shared_ptr<const DeviceReport> device) {
    MutexLock lock(&mutex_);
    device_ = std::move(device);
  }
  // Calls from now on belong to this step, whichever one the host has in hand. For the calls'
  // thread.
  void set_step(int64_t step) { step_ = step; }
  // The call in progress, if there is one; the host's call goes before the device's. A device's
  // call counts from the moment that any thread first saw it, and never stands still, since a
  // device that waits polls all the time.
  std::optional<OperationInProgress> InProgress() const;
  int64_t entered() const;  // collectives
  void LookAtDevice() const;

 private:
  // The last call of a kind, whether it goes on, and since when. The time is written first: who
  // reads the call before the time finds that call's time or a later one's.
  struct Line {
    std::atomic<uint64_t> call = 0;
    std::atomic<int64_t> since_ns = 0;
    std::atomic<int64_t> step = kNoStep;
  };

  void Enter(const Call& call);
  void Leave(Operation operation);
  std::optional<OperationInProgress> OnDevice() const;
  OperationInProgress Describe(Call call, absl::Duration elapsed, absl::Duration still) const;
  Line& LineOf(Operation operation);

  const std::string name_;
  const std::vector<int> ranks_;
  const int self_;
  RankClock* const clock_;
  Line collective_;
  Line message_;
  Pulse pulse_;
  int64_t step_ = kNoStep;

  std::shared_ptr<const DeviceReport> Device() const {
    MutexLock lock(&mutex_);
    return device_;
  }

  mutable Mutex mutex_;
  std::shared_ptr<const DeviceReport> device_ ABSL_GUARDED_BY(mutex_);
  // The device's last call that was seen, and when it was seen first.
  mutable int64_t seen_number_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable int64_t seen_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace skein::comm

#include "worker/engine/loops.h"

#include <time.h>

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/thread_name.h"
#include "kernels/ops/backend.h"
#include "worker/engine/step_order.h"
#include "worker/engine/step_watch.h"

namespace skein::worker {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

SteadyTime SteadyNow() { return std::chrono::steady_clock::now(); }

absl::Duration ThreadCpuTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

// Holds the orders that a rank has heard and has yet to carry out.
class OrderQueue {
 public:
  void Push(StepOrder order) {
    MutexLock lock(&mutex_);
    orders_.push_back(std::move(order));
    changed_.NotifyOne();
  }
  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
    changed_.NotifyOne();
  }
  // Takes the next order; `wait` waits for one. Nothing once it is closed and empty.
  std::optional<StepOrder> Pop(bool wait) {
    MutexLock lock(&mutex_);
    while (wait && orders_.empty() && !closed_) changed_.Wait(&mutex_);
    if (orders_.empty()) return std::nullopt;
    StepOrder order = std::move(orders_.front());
    orders_.pop_front();
    return order;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<StepOrder> orders_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// While a step runs, the order that comes behind it is looked for this often.
constexpr absl::Duration kPollInterval = absl::Microseconds(20);

// Carries out orders, the next one as soon as it is there, until no more come or `deliver` returns
// false. Steps end in their order.
void ComputeOrders(Stage& stage, OrderQueue& orders, absl::FunctionRef<bool(StepResult)> deliver) {
  NameThisThread("steps");
  while (true) {
    const bool idle = stage.under_way() == 0;
    std::optional<StepOrder> order = orders.Pop(/*wait=*/idle);
    if (order.has_value()) stage.Begin(*std::move(order));
    if (stage.under_way() == 0) return;
    const bool full = stage.under_way() == kernels::Executable::kBatches;
    std::optional<StepResult> result =
        stage.Finish(full ? absl::InfiniteFuture() : absl::Now() + kPollInterval);
    if (result.has_value() && !deliver(*std::move(result))) return;
  }
}

// Runs three threads: the caller's schedules; one computes the leader's own stage; one, where there
// are other ranks, hears what they say.
class Leader {
 public:
  Leader(const LeaderOptions& options, Stage& stage, comm::ControlChannel* channel, Inbox& inbox)
      : options_(options),
        stage_(stage),
        channel_(channel),
        inbox_(inbox),
        state_(options.limits),
        watch_(channel == nullptr, options.step_timeout, options.model_bytes),
        beat_(options.beats == nullptr ? nullptr : options.beats->Add("scheduler")) {}

  absl::Status Run() {
    std::vector<std::thread> threads;
    threads.emplace_back([this] { ComputeLoop(); });
    if (channel_ != nullptr) threads.emplace_back([this] { ListenLoop(); });
    absl::Status status = Serve();
    if (status.ok() && channel_ != nullptr) {
      status = channel_->Broadcast(EncodeStop(), absl::Now() + StepTimeout());
    }
    if (!status.ok() && options_.on_failure) options_.on_failure(status);
    if (!status.ok()) stage_.Abort(status);
    orders_.Close();
    if (channel_ != nullptr) channel_->Close();
    const ThreadBeats::Excuse waits_for_computing(beat_);  // the step's deadline bounds it
    for (std::thread& thread : threads) thread.join();
    return status;
  }

 private:
  void ComputeLoop() {
    ComputeOrders(stage_, orders_, [this](StepResult result) {
      const bool failed = !result.status.ok();
      if (failed || stage_.reports()) inbox_.Deliver(std::move(result));
      return !failed;
    });
  }

  void ListenLoop() {
    NameThisThread("listener");
    ThreadBeats::Beat* const beat =
        options_.beats == nullptr ? nullptr : options_.beats->Add("listener");
    while (true) {
      if (beat != nullptr) beat->Strike();
      const absl::StatusOr<comm::ControlMessage> message =
          channel_->Receive(absl::Now() + ThreadBeats::kInterval);
      if (absl::IsDeadlineExceeded(message.status())) continue;
      absl::StatusOr<StepResult> result =
          message.ok() ? DecodeStepResult(message->bytes) : message.status();
      if (!result.ok()) return inbox_.Deliver({.status = result.status()});
      result->status =
          Annotate(result->status,
                   absl::StrCat("rank ", message->from, " of the replica, step ", result->step));
      inbox_.Deliver(*std::move(result));
    }
  }

  absl::Status Serve() {
    bool stopping = false;
    while (!stopping || state_.outstanding() > 0) {
      Inbox::Contents contents = inbox_.Take(Deadline(), stopping, beat_);
      const absl::Duration begin = ThreadCpuTime();
      if (contents.cancel_all) state_.CancelAll();
      epoch_ = contents.epoch;
      const absl::Time now = absl::Now();
      for (serving::Request& request : contents.requests) state_.Add(std::move(request), now);
      for (const Cancellation& cancellation : contents.cancelled) {
        state_.Cancel(cancellation.id, cancellation.answer);
      }
      SKEIN_RETURN_IF_ERROR(ApplyResults(contents.results));
      stopping = contents.stop;
      if (!stopping) SKEIN_RETURN_IF_ERROR(SendOrders());
      host_time_ += ThreadCpuTime() - begin;
      // The ranks have work by now.
      if (state_.has_outputs()) Report();
    }
    return absl::OkStatus();
  }

  // Returns the time-out of the oldest outstanding step.
  absl::Duration StepTimeout() const { return watch_.Timeout(state_.rows()); }
  SteadyTime Deadline() const {
    return state_.outstanding() > 0 ? last_result_ + absl::ToChronoNanoseconds(StepTimeout())
                                    : SteadyTime::max();
  }

  absl::Status SendOrders() {
    while (!state_.idle() && state_.outstanding() < options_.orders_ahead) {
      const bool first = state_.outstanding() == 0;
      SKEIN_ASSIGN_OR_RETURN(std::optional<StepOrder> order, state_.NextOrder(absl::Now()));
      if (!order.has_value()) {
        if (!first) return absl::OkStatus();  // a result will tell more
        return absl::InternalError("requests wait, nothing runs, and the scheduler runs none");
      }
      if (first) last_result_ = SteadyNow();
      if (channel_ != nullptr) {
        const ThreadBeats::Excuse waits_for_followers(beat_);
        SKEIN_RETURN_IF_ERROR(channel_->Broadcast(Encode(*order), absl::Now() + StepTimeout()));
      }
      orders_.Push(*std::move(order));
    }
    return absl::OkStatus();
  }

  absl::Status ApplyResults(const std::vector<StepResult>& results) {
    for (const StepResult& result : results) {
      SKEIN_RETURN_IF_ERROR(result.status);
      const SteadyTime now = SteadyNow();
      const absl::Duration time = absl::FromChrono(now - std::exchange(last_result_, now));
      watch_.Observe(state_.rows(), time);
      SKEIN_RETURN_IF_ERROR(state_.Apply(result, time));
    }
    if (!results.empty() || SteadyNow() <= Deadline()) return absl::OkStatus();
    const absl::Status late = absl::DeadlineExceededError(
        absl::StrCat("a step was not over after ", absl::FormatDuration(StepTimeout())));
    if (options_.on_stuck) options_.on_stuck(late);
    return late;
  }

  void Report() {
    StepReport report = state_.TakeReport();
    report.epoch = epoch_;
    report.load.host_time = host_time_;
    const ThreadBeats::Excuse waits_for_coordinator(beat_);
    options_.report(std::move(report));
  }

  const LeaderOptions& options_;
  Stage& stage_;
  comm::ControlChannel* const channel_;
  Inbox& inbox_;
  ReplicaState state_;
  ResultWatch watch_;
  ThreadBeats::Beat* const beat_;  // the caller's; may be null
  OrderQueue orders_;
  uint64_t epoch_ = 0;        // epoch of what `state_` holds
  SteadyTime last_result_;    // or the first order after an idle time
  absl::Duration host_time_;  // CPU time from an arrival to the orders that follow
};

// Runs two threads: the caller's listens, so that the next order, and an end, are heard during a
// step; one computes.
class Follower {
 public:
  Follower(Stage& stage, comm::ControlChannel& channel, absl::Duration step_timeout)
      : stage_(stage), channel_(channel), step_timeout_(step_timeout) {}

  absl::Status Run() {
    std::thread computing([this] { ComputeLoop(); });
    const absl::Status heard = Listen();
    if (!heard.ok()) stage_.Abort(heard);
    orders_.Close();
    computing.join();
    return computed_.ok() ? heard : computed_;  // the cause comes first
  }

 private:
  // Listens until the leader says stop.
  absl::Status Listen() {
    while (true) {
      SKEIN_ASSIGN_OR_RETURN(const comm::ControlMessage message,
                             channel_.Receive(absl::InfiniteFuture()));
      SKEIN_ASSIGN_OR_RETURN(const MessageKind kind, KindOf(message.bytes));
      if (kind == MessageKind::kStop) return absl::OkStatus();
      SKEIN_ASSIGN_OR_RETURN(StepOrder order, DecodeStepOrder(message.bytes));
      orders_.Push(std::move(order));
    }
  }

  void ComputeLoop() {
    ComputeOrders(stage_, orders_, [this](const StepResult& result) {
      computed_ = Tell(result);
      if (!computed_.ok()) channel_.Close();  // the listener has nothing to wait for
      return computed_.ok();
    });
  }

  absl::Status Tell(const StepResult& result) {
    absl::Status sent;
    if (!result.status.ok() || stage_.reports()) {
      sent = channel_.SendToLeader(Encode(result), absl::Now() + step_timeout_);
    }
    SKEIN_RETURN_IF_ERROR(result.status);  // the cause comes first
    return sent;
  }

  Stage& stage_;
  comm::ControlChannel& channel_;
  const absl::Duration step_timeout_;
  OrderQueue orders_;
  absl::Status computed_;  // the computing thread's; read when it is over
};

}  // namespace

absl::Status RunLeader(const LeaderOptions& options, Stage& stage, comm::ControlChannel* channel,
                       Inbox& inbox) {
  return Leader(options, stage, channel, inbox).Run();
}

absl::Status RunFollower(Stage& stage, comm::ControlChannel& channel, absl::Duration step_timeout) {
  return Follower(stage, channel, step_timeout).Run();
}

}  // namespace skein::worker

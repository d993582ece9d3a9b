#include "worker/engine/warm_up_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "parallel/comm/call.h"
#include "parallel/comm/progress.h"

namespace skein::worker {
namespace {

// Who waits for other ranks looks for them all the time.
constexpr absl::Duration kStill = absl::Seconds(1);

bool WaitsForOthers(const comm::Progress& progress) {
  return progress.operation.has_value() && progress.operation->still < kStill;
}

}  // namespace

WarmUpWatch::WarmUpWatch(const comm::OperationTracker* tracker, absl::Duration timeout,
                         std::function<void(const absl::Status&)> on_late)
    : tracker_(tracker),
      timeout_(timeout),
      on_late_(std::move(on_late)),
      thread_([this] { Wait(); }) {}

WarmUpWatch::~WarmUpWatch() {
  {
    MutexLock lock(&mutex_);
    over_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void WarmUpWatch::Enter(std::string_view stage) {
  MutexLock lock(&mutex_);
  stage_ = std::string(stage);
  since_ = std::chrono::steady_clock::now();
}

bool WarmUpWatch::SleepUntil(SteadyTime time) {
  MutexLock lock(&mutex_);
  while (!over_ && changed_.WaitUntil(&mutex_, time)) {
  }
  return !over_;
}

void WarmUpWatch::Wait() {
  const SteadyTime deadline =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout_);
  if (!SleepUntil(deadline)) return;
  comm::Progress progress = tracker_->Read();
  if (WaitsForOthers(progress)) {
    if (!SleepUntil(deadline + absl::ToChronoNanoseconds(kGrace))) return;
    progress = tracker_->Read();
  }
  on_late_(Late(progress));
}

absl::Status WarmUpWatch::Late(const comm::Progress& progress) {
  MutexLock lock(&mutex_);
  const auto since = absl::FromChrono(std::chrono::steady_clock::now() - since_);
  std::string where;
  if (progress.operation.has_value()) {
    const comm::OperationInProgress& operation = *progress.operation;
    where = absl::StrCat(", in ", comm::DescribeCall(operation.call, operation.group),
                         " with rank ", absl::StrJoin(operation.others, ", rank "));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "warming up was not over within ", absl::FormatDuration(timeout_), ": it is ", stage_, where,
      ", for ", absl::FormatDuration(absl::Floor(since, absl::Milliseconds(100)))));
}

}  // namespace skein::worker

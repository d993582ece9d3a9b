#include "supervisor/watch.h"

#include "absl/strings/str_cat.h"

namespace skein::supervisor {
namespace {

// So many questions show a silence: time alone may have passed because the supervisor itself stood
// still.
constexpr int kLeastUnanswered = 5;

}  // namespace

std::optional<std::string> JobWatch::Observe(const JobInfo& info, absl::Time now) {
  using State = JobInfo::State;
  serving_ = info.state == State::kServing;
  known_ = known_ || info.state >= State::kWaiting;
  ended_ = ended_ || info.state == State::kEnded;
  const bool incomplete = info.state == State::kUnknown || info.state == State::kWaiting;
  if (!incomplete) incomplete_since_.reset();
  if (condemned_) return std::nullopt;
  std::optional<std::string> why;
  if (info.state == State::kLost) {
    why = absl::StrCat("the coordinator names it as lost: ", info.detail);
  } else if (info.state == State::kEnded) {
    why = absl::StrCat("the coordinator says that it has ended: ", info.detail);
  } else if (incomplete && !incomplete_since_) {
    incomplete_since_ = now;
  } else if (incomplete && now - *incomplete_since_ >= start_timeout_) {
    why = absl::StrCat(info.state == State::kUnknown ? "no rank of it" : "not every rank of it",
                       " has come to the coordinator for ",
                       absl::FormatDuration(now - *incomplete_since_), " (--start-timeout)");
  }
  condemned_ = why.has_value();
  return why;
}

std::optional<bool> JobWatch::Drained(JobInfo::State answer) const {
  using State = JobInfo::State;
  if (ended_) return true;
  switch (answer) {
    case State::kGone:  // it leaves after a drain
    case State::kCannotTell:
    case State::kEnded:
      return true;
    case State::kUnknown:
      return !known_;  // one that was restarted knows nothing of a drain before
    case State::kLost:
      return false;
    case State::kNoAnswer:
    case State::kWaiting:
    case State::kLoading:
    case State::kServing:
      break;
  }
  return std::nullopt;
}

void SilenceWatch::Started(absl::Time now) {
  if (!started_) heard_ = now;
  started_ = true;
}

std::optional<absl::Duration> SilenceWatch::Observe(bool answered, absl::Time now) {
  if (answered) {
    heard_ = now;
    started_ = true;
    unanswered_ = 0;
    return std::nullopt;
  }
  ++unanswered_;
  const absl::Duration silence = now - heard_;
  if (condemned_ || unanswered_ < kLeastUnanswered) return std::nullopt;
  if (silence < (started_ ? limit_ : start_limit_)) return std::nullopt;
  condemned_ = true;
  return silence;
}

}  // namespace skein::supervisor

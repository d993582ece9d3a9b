#include "supervisor/keeper.h"

#include <algorithm>

namespace skein::supervisor {

Keeper::Keeper(const Options& options, absl::Time now)
    : options_(options), start_at_(now), wait_(options.first_wait) {}

Keeper::Step Keeper::Next(absl::Time now) {
  if (state_ == State::kWaiting && now >= start_at_) {
    state_ = State::kRunning;
    serves_since_.reset();
    ending_.reset();
    return Step::kStart;
  }
  if (state_ != State::kRunning || !ending_) return Step::kNone;
  if (!ending_->killed && now >= ending_->kill_at) {
    ending_->terminated = ending_->killed = true;
    return Step::kKill;
  }
  if (!ending_->terminated && now >= ending_->terminate_at) {
    ending_->terminated = true;
    return Step::kTerminate;
  }
  return Step::kNone;
}

absl::Time Keeper::NextTime() const {
  if (state_ == State::kWaiting) return start_at_;
  if (state_ == State::kOver || !ending_ || ending_->killed) return absl::InfiniteFuture();
  return ending_->terminated ? ending_->kill_at : ending_->terminate_at;
}

void Keeper::Serves(absl::Time now) {
  if (!serves_since_) serves_since_ = now;
}

void Keeper::End(const Pace& pace, absl::Time now) {
  if (state_ != State::kRunning) return;
  if (!ending_) {
    ending_ = {.terminate_at = absl::InfiniteFuture(), .kill_at = absl::InfiniteFuture()};
  }
  ending_->terminate_at = std::min(ending_->terminate_at, now + pace.grace);
  ending_->kill_at = std::min(ending_->kill_at, now + pace.grace + pace.patience);
  ending_->lost = ending_->lost || pace.lost;
}

void Keeper::Stop() {
  stopped_ = true;
  if (state_ == State::kWaiting) state_ = State::kOver;
}

Keeper::Aftermath Keeper::Ended(const ExitStatus& end, absl::Time now) {
  last_end_ = end;
  Aftermath aftermath = {.served = serves_since_ ? now - *serves_since_ : absl::ZeroDuration()};
  // What a program says that was made to end is not its own word.
  const bool own_word = !ending_ || !(ending_->terminated || ending_->killed || ending_->lost);
  drained_ = own_word && end.Drained();
  if (stopped_ || (own_word && (end.Drained() || end.Misused()))) {
    state_ = State::kOver;
    misused_ = !stopped_ && end.Misused();
    return aftermath;
  }
  if (aftermath.served >= options_.reset_after) wait_ = options_.first_wait;
  aftermath.wait = wait_;
  state_ = State::kWaiting;
  start_at_ = now + wait_;
  wait_ = std::min(2 * wait_, options_.longest_wait);
  return aftermath;
}

}  // namespace skein::supervisor

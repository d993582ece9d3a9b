// Where a rank's time went of late, by what its heartbeats tell of all of it.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>

#include "absl/time/time.h"
#include "parallel/comm/rank_times.h"

namespace skein::coordinator {

// Keeps what about ten seconds of heartbeats told. Not thread-safe.
class RecentTimes {
 public:
  void Add(absl::Time now, const comm::RankTimes& times) {
    // A rank that beats faster than it should takes no more memory.
    if (told_.size() >= 2 && now - told_[told_.size() - 2].when < kLeastApart) told_.pop_back();
    told_.push_back({now, times});
    while (told_.size() > 2 && now - told_[1].when >= kWindow) told_.pop_front();
  }
  // All that was told last.
  std::optional<comm::RankTimes> All() const {
    return told_.empty() ? std::nullopt : std::optional(told_.back().times);
  }
  // Of it, what came since the first that is kept; none before the second.
  std::optional<comm::RankTimes> Recent() const {
    if (told_.size() < 2) return std::nullopt;
    const comm::RankTimes of = told_.back().times - told_.front().times;
    const auto passed = [](absl::Duration time) { return std::max(time, absl::ZeroDuration()); };
    return comm::RankTimes{passed(of.compute), passed(of.transfer), passed(of.bubble),
                           passed(of.waiting)};
  }

 private:
  static constexpr absl::Duration kWindow = absl::Seconds(10);
  static constexpr absl::Duration kLeastApart = absl::Milliseconds(250);  // half of a beat's period

  struct Told {
    absl::Time when;
    comm::RankTimes times;
  };
  std::deque<Told> told_;  // the oldest first
};

}  // namespace skein::coordinator

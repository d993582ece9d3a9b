// The order in which requests are served, in the coordinator's queue and in a replica's scheduler
// alike.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>

#include "absl/time/time.h"

namespace skein::serving {

// Waiting for so long counts as one priority more, so that nobody starves: long beside a step,
// short beside a person's patience.
inline constexpr absl::Duration kAging = absl::Seconds(10);

// The lesser goes first: the higher effective priority, then the earlier deadline, then the earlier
// arrival. Whoever sorts breaks ties by id.
struct QueueOrder {
  int64_t effective_priority = 0;
  absl::Time deadline;
  absl::Time arrival;

  friend bool operator==(const QueueOrder&, const QueueOrder&) = default;
  friend std::strong_ordering operator<=>(const QueueOrder& a, const QueueOrder& b) {
    if (a.effective_priority != b.effective_priority) {
      return b.effective_priority <=> a.effective_priority;
    }
    using Order = std::strong_ordering;
    if (a.deadline != b.deadline) return a.deadline < b.deadline ? Order::less : Order::greater;
    if (a.arrival != b.arrival) return a.arrival < b.arrival ? Order::less : Order::greater;
    return Order::equal;
  }
};

inline QueueOrder OrderAt(absl::Time now, int32_t priority, absl::Time deadline, absl::Time arrival,
                          absl::Duration aging = kAging) {
  // No age counts for more: above any difference of priorities, and far from overflow.
  constexpr int64_t kMaxAge = int64_t{1} << 40;
  absl::Duration rest;
  const absl::Duration waited = std::max(now - arrival, absl::ZeroDuration());
  const int64_t age = std::min(absl::IDivDuration(waited, aging, &rest), kMaxAge);
  return {.effective_priority = priority + age, .deadline = deadline, .arrival = arrival};
}

}  // namespace skein::serving

// How many streams all clients together may reset: what gRPC has begun for a stream goes on after
// its reset, and nobody counts it any more (rapid reset, CVE-2023-44487). Pure.
#pragma once

#include <cstddef>

#include "absl/time/time.h"

namespace skein::coordinator {

class ResetBudget {
 public:
  struct Options {
    double burst = 2048;  // at once: whoever has the most streams may cancel all of them, twice
    double per_second = 1000;
  };

  explicit ResetBudget(const Options& options) : options_(options), left_(options.burst) {}

  // Pays for one reset. False: not before `next`.
  bool Pay(absl::Time now);
  absl::Time next(absl::Time now) const;
  // For streams of a client that is gone, whom nobody can make wait: the next ones pay for them,
  // but for no more than a burst.
  void Owe(size_t streams, absl::Time now);
  bool InDebt(absl::Time now);

 private:
  void Refill(absl::Time now);

  const Options options_;
  double left_;
  absl::Time at_ = absl::InfinitePast();
};

}  // namespace skein::coordinator

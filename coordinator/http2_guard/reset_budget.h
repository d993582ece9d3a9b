// How many streams all clients together may reset: what gRPC has begun for a stream goes on after
// its reset, and nobody counts it any more (rapid reset, CVE-2023-44487). Pure.
#pragma once

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

 private:
  const Options options_;
  double left_;
  absl::Time at_ = absl::InfinitePast();
};

}  // namespace skein::coordinator

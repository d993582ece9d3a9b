// Tokens a second over the last ten seconds.
#pragma once

#include <array>
#include <cstdint>

#include "absl/time/time.h"

namespace skein::coordinator {

// Counts by whole seconds, in constant memory. Not thread-safe.
class TokenRate {
 public:
  void Add(absl::Time now, int64_t tokens) {
    Bucket& bucket = buckets_[Second(now) % buckets_.size()];
    if (bucket.second != Second(now)) bucket = {Second(now), 0};
    bucket.tokens += tokens;
  }

  // Over the ten whole seconds before the current one.
  double PerSecond(absl::Time now) const {
    int64_t tokens = 0;
    for (const Bucket& bucket : buckets_) {
      const int64_t age = Second(now) - bucket.second;
      if (age >= 1 && age <= kSeconds) tokens += bucket.tokens;
    }
    return static_cast<double>(tokens) / kSeconds;
  }

 private:
  static constexpr int64_t kSeconds = 10;
  struct Bucket {
    int64_t second = -kSeconds - 1;
    int64_t tokens = 0;
  };
  static int64_t Second(absl::Time time) { return absl::ToUnixSeconds(time); }

  std::array<Bucket, kSeconds + 1> buckets_;  // and the current second
};

}  // namespace skein::coordinator

// Medians and tails of durations over the last minute, in constant memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace skein::coordinator {

// Thread-safe. What is added costs an atomic increment; time passes by Advance alone.
class RecentDurations {
 public:
  // Of what was added within it, and up to kPart longer ago.
  static constexpr absl::Duration kWindow = absl::Minutes(1);
  static constexpr absl::Duration kPart = absl::Seconds(10);

  struct Quantiles {
    int64_t count = 0;
    absl::Duration p50, p99;  // right within 7%; zero where nothing was added
  };

  void Add(absl::Duration duration) {
    counts_[part_.load(std::memory_order_relaxed)][BucketOf(duration)].fetch_add(
        1, std::memory_order_relaxed);
  }
  Quantiles Read() const;
  // Forgets what is too long ago. Call it several times within kPart, on one thread.
  void Advance(absl::Time now);

 private:
  // Eight buckets for each power of two ns, up to 2^42 ns, more than an hour.
  static constexpr int kBits = 3;
  static constexpr size_t kBuckets = (42 - kBits) << kBits;
  static constexpr size_t kParts = 7;  // of the window, and the current one

  static size_t BucketOf(absl::Duration duration);
  static absl::Duration MiddleOf(size_t bucket);

  std::array<std::array<std::atomic<uint32_t>, kBuckets>, kParts> counts_ = {};
  std::atomic<size_t> part_ = 0;                 // that is added to
  absl::Time part_ends_ = absl::InfinitePast();  // Advance's
};

}  // namespace skein::coordinator

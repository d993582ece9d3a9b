#include "coordinator/service/recent_durations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace skein::coordinator {

// Bucket ((e - 3) << 3) + m is of durations from (8 + m) << (e - 3) ns on, where e >= 3.
size_t RecentDurations::BucketOf(absl::Duration duration) {
  const auto ns = static_cast<uint64_t>(
      std::max<int64_t>(int64_t{1} << kBits, absl::ToInt64Nanoseconds(duration)));
  const int shift = std::bit_width(ns) - 1 - kBits;
  const size_t bucket = (static_cast<size_t>(shift) << kBits) + ((ns >> shift) - (1 << kBits));
  return std::min(bucket, kBuckets - 1);
}

absl::Duration RecentDurations::MiddleOf(size_t bucket) {
  const double low =
      std::ldexp((1 << kBits) + (bucket & ((1 << kBits) - 1)), static_cast<int>(bucket >> kBits));
  return absl::Nanoseconds(low + std::ldexp(0.5, static_cast<int>(bucket >> kBits)));
}

RecentDurations::Quantiles RecentDurations::Read() const {
  std::array<int64_t, kBuckets> sums = {};
  Quantiles out;
  for (const auto& part : counts_) {
    for (size_t i = 0; i < kBuckets; ++i) sums[i] += part[i].load(std::memory_order_relaxed);
  }
  for (const int64_t sum : sums) out.count += sum;
  // The smallest duration that so many are not longer than.
  const auto quantile = [&](double share) {
    const auto rank = static_cast<int64_t>(std::ceil(share * static_cast<double>(out.count)));
    int64_t up_to = 0;
    for (size_t i = 0; i < kBuckets; ++i) {
      up_to += sums[i];
      if (up_to >= rank) return MiddleOf(i);
    }
    return absl::ZeroDuration();
  };
  if (out.count == 0) return out;
  out.p50 = quantile(0.5);
  out.p99 = quantile(0.99);
  return out;
}

void RecentDurations::Advance(absl::Time now) {
  if (part_ends_ == absl::InfinitePast()) part_ends_ = now + kPart;
  // After a long sleep all parts are old.
  for (size_t i = 0; i < kParts && now >= part_ends_; ++i) {
    const size_t next = (part_.load(std::memory_order_relaxed) + 1) % kParts;
    for (std::atomic<uint32_t>& count : counts_[next]) count.store(0, std::memory_order_relaxed);
    part_.store(next, std::memory_order_relaxed);
    part_ends_ += kPart;
  }
  if (now >= part_ends_) part_ends_ = now + kPart;
}

}  // namespace skein::coordinator

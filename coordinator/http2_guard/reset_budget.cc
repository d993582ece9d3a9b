#include "coordinator/http2_guard/reset_budget.h"

#include <algorithm>

namespace skein::coordinator {

void ResetBudget::Refill(absl::Time now) {
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(now - at_));
  left_ = std::min(options_.burst, left_ + seconds * options_.per_second);
  at_ = now;
}

void ResetBudget::Owe(size_t streams, absl::Time now) {
  Refill(now);
  left_ = std::max(left_ - static_cast<double>(streams), -options_.burst);
}

bool ResetBudget::InDebt(absl::Time now) {
  Refill(now);
  return left_ < 0;
}

bool ResetBudget::Pay(absl::Time now) {
  Refill(now);
  if (left_ < 1) return false;
  --left_;
  return true;
}

absl::Time ResetBudget::next(absl::Time now) const {
  return now + absl::Seconds(std::max(0.0, 1 - left_) / options_.per_second);
}

}  // namespace skein::coordinator

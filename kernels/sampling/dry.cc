#include "kernels/sampling/dry.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace skein::kernels {
namespace {

// Marks tokens for as long as it lives.
class Breakers {
 public:
  Breakers(const std::vector<std::vector<int32_t>>& breakers, DryMemory& memory)
      : breakers_(breakers), memory_(memory) {
    Mark(1);
  }
  ~Breakers() { Mark(0); }
  Breakers(const Breakers&) = delete;
  Breakers& operator=(const Breakers&) = delete;

  bool IsSingle(int32_t token) const { return Is(memory_.single, token); }

  // Tells whether a breaker ends where `tokens` end.
  bool End(absl::Span<const int32_t> tokens) const {
    if (IsSingle(tokens.back())) return true;
    if (!Is(memory_.last_of_longer, tokens.back())) return false;
    return std::any_of(breakers_.begin(), breakers_.end(), [&](absl::Span<const int32_t> breaker) {
      return breaker.size() > 1 && breaker.size() <= tokens.size() &&
             std::equal(breaker.rbegin(), breaker.rend(), tokens.rbegin());
    });
  }

 private:
  static bool Is(const std::vector<uint8_t>& marks, int32_t token) {
    return static_cast<size_t>(token) < marks.size() && marks[token] != 0;
  }
  void Mark(uint8_t mark) {
    for (const std::vector<int32_t>& breaker : breakers_) {
      if (breaker.empty()) continue;
      std::vector<uint8_t>& marks = breaker.size() == 1 ? memory_.single : memory_.last_of_longer;
      if (static_cast<size_t>(breaker.back()) >= marks.size()) marks.resize(breaker.back() + 1);
      marks[breaker.back()] = mark;
    }
  }

  const std::vector<std::vector<int32_t>>& breakers_;
  DryMemory& memory_;
};

void TakeEnd(absl::Span<const int32_t> prompt, absl::Span<const int32_t> output, int32_t last_n,
             std::vector<int32_t>& tokens) {
  const size_t size = prompt.size() + output.size();
  const size_t skip =
      last_n >= 0 && static_cast<size_t>(last_n) < size ? size - static_cast<size_t>(last_n) : 0;
  tokens.clear();
  for (const auto& [part, skipped] : {std::pair{prompt, std::min(skip, prompt.size())},
                                      std::pair{output, skip - std::min(skip, prompt.size())}}) {
    tokens.insert(tokens.end(), part.begin() + skipped, part.end());
  }
}

int32_t TokensSinceBreaker(absl::Span<const int32_t> tokens, const Breakers& breakers) {
  size_t before = tokens.size();
  while (before > 0 && !breakers.End(tokens.first(before))) --before;
  return static_cast<int32_t>(tokens.size() - before);
}

// Returns base^exponent, with the same bits whatever the C library.
double Power(double base, int32_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) power *= base;
  }
  return power;
}

// No logit becomes infinite: after many repeats there must still be one to take.
constexpr double kMaxPenalty = 1e30;

}  // namespace

int32_t LongestRepeatThatCounts(const serving::SamplingParams& params) {
  const int32_t allowed = std::max(params.dry_allowed_length, 1);
  if (params.dry_base == 1.0f) return allowed;
  // Twice the most, so that no rounding is below it.
  const auto is_enough = [&](int32_t exponent) {
    return double{params.dry_multiplier} * Power(params.dry_base, exponent) >= 2 * kMaxPenalty;
  };
  constexpr int32_t kLongest = 1 << 30;
  int32_t exponent = 1;
  while (exponent < kLongest && !is_enough(exponent)) exponent *= 2;
  return static_cast<int32_t>(
      std::min<int64_t>(int64_t{allowed} + exponent, std::numeric_limits<int32_t>::max()));
}

void PenaliseRepeats(const serving::SamplingParams& params, absl::Span<const int32_t> prompt,
                     absl::Span<const int32_t> output, int32_t first, absl::Span<float> logits,
                     DryMemory& memory) {
  const Breakers breakers(params.dry_breakers, memory);
  std::vector<int32_t>& tokens = memory.tokens;
  TakeEnd(prompt, output, params.dry_last_n, tokens);
  const int32_t limit = TokensSinceBreaker(tokens, breakers);
  const int32_t least = std::max(params.dry_allowed_length, 1);
  if (limit < least) return;
  RepeatsBefore<int32_t>(tokens, memory.lengths);
  std::vector<int32_t>& longest = memory.longest;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (static_cast<size_t>(tokens[i]) >= longest.size()) longest.resize(tokens[i] + 1);
    longest[tokens[i]] = std::max(longest[tokens[i]], std::min(memory.lengths[i], limit));
  }
  for (int32_t token : tokens) {
    const int32_t length = std::exchange(longest[token], 0);
    const int64_t index = int64_t{token} - first;
    const bool own = index >= 0 && index < static_cast<int64_t>(logits.size());
    if (length < least || !own || breakers.IsSingle(token)) continue;
    const double penalty =
        double{params.dry_multiplier} * Power(params.dry_base, length - params.dry_allowed_length);
    logits[index] = static_cast<float>(logits[index] - std::min(penalty, kMaxPenalty));
  }
}

}  // namespace skein::kernels

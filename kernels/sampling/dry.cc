#include "kernels/sampling/dry.h"

#include <algorithm>

namespace skein::kernels {
namespace {

class Breakers {
 public:
  Breakers(const std::vector<std::vector<int32_t>>& breakers, size_t vocabulary)
      : single_(vocabulary, false), last_of_longer_(vocabulary, false) {
    for (const std::vector<int32_t>& breaker : breakers) {
      if (breaker.size() == 1) single_[breaker[0]] = true;
      if (breaker.size() <= 1) continue;
      last_of_longer_[breaker.back()] = true;
      longer_.push_back(breaker);
    }
  }

  bool IsSingle(int32_t token) const { return single_[token]; }

  // Whether one ends where `tokens` end.
  bool End(absl::Span<const int32_t> tokens) const {
    if (single_[tokens.back()]) return true;
    if (!last_of_longer_[tokens.back()]) return false;
    return std::any_of(longer_.begin(), longer_.end(), [&](absl::Span<const int32_t> breaker) {
      return breaker.size() <= tokens.size() &&
             std::equal(breaker.rbegin(), breaker.rend(), tokens.rbegin());
    });
  }

 private:
  std::vector<bool> single_;
  std::vector<bool> last_of_longer_;
  std::vector<absl::Span<const int32_t>> longer_;
};

std::vector<int32_t> Window(absl::Span<const int32_t> prompt, absl::Span<const int32_t> output,
                            int32_t last_n) {
  std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  tokens.insert(tokens.end(), output.begin(), output.end());
  if (last_n >= 0 && static_cast<size_t>(last_n) < tokens.size()) {
    tokens.erase(tokens.begin(), tokens.end() - last_n);
  }
  return tokens;
}

int32_t TokensSinceBreaker(absl::Span<const int32_t> tokens, const Breakers& breakers) {
  size_t before = tokens.size();
  while (before > 0 && !breakers.End(tokens.first(before))) --before;
  return static_cast<int32_t>(tokens.size() - before);
}

// The same bits whatever the C library.
double Power(double base, int32_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) power *= base;
  }
  return power;
}

}  // namespace

void PenaliseRepeats(const DryParams& params, absl::Span<const int32_t> prompt,
                     absl::Span<const int32_t> output, absl::Span<float> logits) {
  const Breakers breakers(params.breakers, logits.size());
  const std::vector<int32_t> tokens = Window(prompt, output, params.last_n);
  const int32_t limit = TokensSinceBreaker(tokens, breakers);
  const int32_t least = std::max(params.allowed_length, 1);
  if (limit < least) return;
  const std::vector<int32_t> lengths = RepeatsBefore<int32_t>(tokens);
  std::vector<int32_t> longest(logits.size(), 0);
  for (size_t i = 0; i < tokens.size(); ++i) {
    longest[tokens[i]] = std::max(longest[tokens[i]], std::min(lengths[i], limit));
  }
  // No logit becomes infinite: after many repeats there must still be one to take.
  constexpr double kMaxPenalty = 1e30;
  for (int32_t token : tokens) {
    if (longest[token] < least || breakers.IsSingle(token)) continue;
    const double penalty =
        double{params.multiplier} * Power(params.base, longest[token] - params.allowed_length);
    logits[token] = static_cast<float>(logits[token] - std::min(penalty, kMaxPenalty));
    longest[token] = 0;  // done
  }
}

}  // namespace skein::kernels

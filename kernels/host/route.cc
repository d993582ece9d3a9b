#include "kernels/host/route.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace skein::kernels {

void Route(const float* logits, int64_t experts, int32_t chosen, bool normalized, float* out) {
  const auto key = [logits](int64_t expert) {
    return std::isnan(logits[expert]) ? -std::numeric_limits<float>::infinity() : logits[expert];
  };
  // Each is the best behind the one before: by its logit, then by its number.
  int64_t last = -1;
  for (int32_t i = 0; i < chosen; ++i) {
    int64_t best = -1;
    for (int64_t expert = 0; expert < experts; ++expert) {
      const bool is_behind =
          last < 0 || key(expert) < key(last) || (key(expert) == key(last) && expert > last);
      if (is_behind && (best < 0 || key(expert) > key(best))) best = expert;
    }
    out[i] = static_cast<float>(best);
    last = best;
  }
  const float largest = key(static_cast<int64_t>(out[0]));
  std::sort(out, out + chosen);
  // Doubles, so that the rounded values do not depend on the C library.
  const auto likeliness = [&](int64_t expert) {
    return std::exp(double{logits[expert]} - double{largest});
  };
  double all = 0;
  for (int64_t expert = 0; expert < experts; ++expert) all += likeliness(expert);
  double sum = 0;
  for (int32_t i = 0; i < chosen; ++i) sum += likeliness(static_cast<int64_t>(out[i]));
  if (!normalized || std::isnan(all)) sum = all;
  for (int32_t i = 0; i < chosen; ++i) {
    out[chosen + i] = static_cast<float>(likeliness(static_cast<int64_t>(out[i])) / sum);
  }
}

}  // namespace skein::kernels

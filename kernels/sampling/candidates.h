// Selects among the tokens that a draw may take, without sorting. Internal to sampling.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace skein::kernels {

// A token with the place of its logit in descending order: tokens are ordered by (key, id).
struct Candidate {
  uint32_t key;
  int32_t id;
  double weight;  // its part of the sum of all weights
};

inline bool Before(const Candidate& a, const Candidate& b) {
  return a.key != b.key ? a.key < b.key : a.id < b.id;
}

inline uint32_t DescendingKey(float logit) {
  // + 0 makes one zero of both zeros.
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);
  return bits & 0x80000000u ? bits : bits ^ 0x7FFFFFFFu;
}

inline float LogitOf(uint32_t descending_key) {
  return std::bit_cast<float>(descending_key & 0x80000000u ? descending_key
                                                           : descending_key ^ 0x7FFFFFFFu);
}

// Returns e^x for x <= 0, within 1e-11 of it; 0 below -709. It has neither branch nor call, so that
// the compiler vectorises it, and gives the same bits whatever the C library.
inline double Exp(double x) {
  // The bound is -1023 ln 2, where 2^n below has no bits left and is 0.
  const double clamped = x > -709.0895657128241 ? x : -709.0895657128241;
  // Adding and subtracting 1.5 * 2^52 rounds to an integer, which stays in the low bits of the sum.
  constexpr double kRounder = 0x1.8p52;
  const double shifted = clamped * 1.4426950408889634 + kRounder;
  const double n = shifted - kRounder;
  const double r = (clamped - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;  // ln 2
  double p = 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1;
  p = p * r + 1;
  const auto power = std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);
  return p * power;
}

// Lists candidates, with memory to work in that is kept from draw to draw. Not thread-safe.
class Candidates {
 public:
  // Takes all tokens, in order of id: token i has logits[i]. Weights are e^((logit - largest) /
  // temperature).
  void Assign(absl::Span<const float> logits, float largest, double temperature);
  // Takes the first `count` > 0 in order, without weights, and lists them in order of id; token
  // first_id + i has logits[i].
  void AssignFirst(absl::Span<const float> logits, int32_t first_id, int64_t count);
  // Takes these, in any order.
  void Assign(absl::Span<const Candidate> candidates);

  void SortById();
  void Weigh(float largest, double temperature);

  double SumOfWeights() const;
  // Returns the first candidate in order up to which weights sum to at least `target` (`more`: to
  // more than it), or the last one.
  Candidate AtWeight(double target, bool more = false);
  // Keeps the first `count` > 0 in order.
  void KeepFirst(int64_t count);
  // Keeps the candidates up to `last` in order.
  void KeepUpTo(const Candidate& last);
  // Keeps the most typical ones, up to a share of typical_p.
  void KeepTypical(double typical_p);
  // Keeps those that weigh at least `least`.
  void KeepHeavy(double least);

  const std::vector<Candidate>& list() const { return list_; }

 private:
  template <typename Measure>
  Candidate Reach(double target, bool more, Measure measure);

  std::vector<Candidate> list_;
  std::vector<Candidate> bucket_, inside_;  // used by Reach
  std::vector<double> sums_;                // used by Reach
  std::vector<Candidate> kept_;             // used by KeepTypical
  std::vector<float> groups_;               // used by AssignFirst
};

// Returns the sum of e^(logit - largest), where `largest` is the largest logit; 0 where that is
// -infinity.
double SumOfExponentials(absl::Span<const float> logits, float largest);

}  // namespace skein::kernels

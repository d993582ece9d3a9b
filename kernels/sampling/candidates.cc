#include "kernels/sampling/candidates.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace skein::kernels {
namespace {

// Up to how many candidates sorting them is faster than 2^11 buckets.
constexpr size_t kFew = 128;

// AtWeight for any measure. Many candidates by a radix selection: sums of 2^11 buckets of the key's
// highest bits, then of the next ones inside the bucket where the target is reached.
template <typename Measure>
Candidate Reach(const std::vector<Candidate>& candidates, double target, bool more,
                Measure measure) {
  const auto reached = [&](double sum) { return more ? sum > target : sum >= target; };
  double before = 0;  // what candidates ahead of `bucket` sum to
  std::vector<Candidate> bucket;
  const std::vector<Candidate>* from = &candidates;
  for (int shift : {21, 10, 0}) {
    if (from->size() <= kFew) break;
    const auto digit = [shift](const Candidate& c) { return c.key >> shift & 0x7FF; };
    std::vector<double> sums(size_t{1} << 11, 0.0);
    size_t last = 0;  // the last bucket with candidates, where a sum that is short by rounding ends
    for (const Candidate& c : *from) {
      sums[digit(c)] += measure(c);
      last = std::max<size_t>(last, digit(c));
    }
    size_t hit = 0;
    while (hit < last && !reached(before + sums[hit])) before += sums[hit++];
    std::vector<Candidate> inside;
    for (const Candidate& c : *from) {
      if (digit(c) == hit) inside.push_back(c);
    }
    bucket = std::move(inside);
    from = &bucket;
  }
  if (from->size() <= kFew) {
    bucket = *from;
    std::sort(bucket.begin(), bucket.end(), Before);
  }
  for (const Candidate& c : bucket) {
    before += measure(c);
    if (reached(before)) return c;
  }
  return bucket.back();
}

// weights[i] = e^((logits[i] - largest) * scale): what sampling takes most of its time for. The
// same bits for every instruction set, since nothing is fused.
[[gnu::always_inline]] inline void Weigh(absl::Span<const float> logits, double largest,
                                         double scale, double* weights) {
  for (size_t i = 0; i < logits.size(); ++i) {
    weights[i] = Exp((double{logits[i]} - largest) * scale);
  }
}

using Weigher = void (*)(absl::Span<const float> logits, double largest, double scale,
                         double* weights);

void WeighAnywhere(absl::Span<const float> logits, double largest, double scale, double* weights) {
  Weigh(logits, largest, scale, weights);
}

#ifdef __x86_64__
[[gnu::target("avx2")]] void WeighAvx2(absl::Span<const float> logits, double largest, double scale,
                                       double* weights) {
  Weigh(logits, largest, scale, weights);
}
[[gnu::target("avx512f,avx512dq,prefer-vector-width=512")]] void WeighAvx512(
    absl::Span<const float> logits, double largest, double scale, double* weights) {
  Weigh(logits, largest, scale, weights);
}
#endif

Weigher ChooseWeigher() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512dq")) return WeighAvx512;
  if (__builtin_cpu_supports("avx2")) return WeighAvx2;
#endif
  return WeighAnywhere;
}

// What at least `count` logits reach, and not many more: of the largest logits of four times as
// many groups, the count-th. Groups are strided, so that the compiler takes vectors of them at a
// time.
float LimitOf(absl::Span<const float> logits, size_t count) {
  std::vector<float> largest(std::min(logits.size(), 4 * count),
                             -std::numeric_limits<float>::infinity());
  for (size_t begin = 0; begin < logits.size(); begin += largest.size()) {
    const absl::Span<const float> piece = logits.subspan(begin, largest.size());
    for (size_t i = 0; i < piece.size(); ++i) largest[i] = std::max(largest[i], piece[i]);
  }
  std::nth_element(largest.begin(), largest.begin() + count - 1, largest.end(), std::greater<>());
  return largest[count - 1];
}

}  // namespace

std::vector<Candidate> Candidates(absl::Span<const float> logits, float largest,
                                  double temperature) {
  static const Weigher weigh = ChooseWeigher();
  constexpr size_t kPiece = 256;
  double weights[kPiece];
  const double scale = 1 / temperature;
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t begin = 0; begin < logits.size(); begin += kPiece) {
    const absl::Span<const float> piece = logits.subspan(begin, kPiece);
    weigh(piece, largest, scale, weights);
    for (size_t i = 0; i < piece.size(); ++i) {
      candidates.push_back({DescendingKey(piece[i]), static_cast<int32_t>(begin + i), weights[i]});
    }
  }
  return candidates;
}

std::vector<Candidate> FirstCandidates(absl::Span<const float> logits, float largest,
                                       double temperature, int32_t count) {
  const auto wanted = static_cast<size_t>(count);
  if (wanted >= logits.size()) return Candidates(logits, largest, temperature);
  const float limit = LimitOf(logits, wanted);
  std::vector<Candidate> kept;
  kept.reserve(2 * wanted);
  constexpr size_t kPiece = 16;
  for (size_t begin = 0; begin < logits.size(); begin += kPiece) {
    const absl::Span<const float> piece = logits.subspan(begin, kPiece);
    int reach = 0;
    for (float logit : piece) reach += logit >= limit ? 1 : 0;
    if (reach == 0) continue;
    for (size_t i = 0; i < piece.size(); ++i) {
      if (piece[i] < limit) continue;
      kept.push_back({DescendingKey(piece[i]), static_cast<int32_t>(begin + i), 0});
    }
  }
  if (kept.size() > wanted) {
    std::vector<Candidate> sorted = kept;
    std::nth_element(sorted.begin(), sorted.begin() + count - 1, sorted.end(), Before);
    KeepUpTo(sorted[wanted - 1], kept);
  }
  for (Candidate& c : kept) c.weight = Exp((double{logits[c.id]} - largest) * (1 / temperature));
  return kept;
}

// Four chains, since an addition takes longer than a load.
double SumOfWeights(const std::vector<Candidate>& candidates) {
  double sums[4] = {};
  for (size_t i = 0; i < candidates.size(); ++i) sums[i % 4] += candidates[i].weight;
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

Candidate AtWeight(const std::vector<Candidate>& candidates, double target, bool more) {
  return Reach(candidates, target, more, [](const Candidate& c) { return c.weight; });
}

void KeepUpTo(const Candidate& last, std::vector<Candidate>& candidates) {
  std::erase_if(candidates, [&](const Candidate& c) { return Before(last, c); });
}

void KeepFirst(int32_t count, std::vector<Candidate>& candidates) {
  if (static_cast<size_t>(count) >= candidates.size()) return;
  KeepUpTo(Reach(candidates, count, /*more=*/false, [](const Candidate&) { return 1; }),
           candidates);
}

}  // namespace skein::kernels

#include "kernels/sampling/candidates.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

namespace skein::kernels {
namespace {

// Up to so many candidates sorting is faster than 2^11 buckets.
constexpr size_t kFew = 128;

// Computes weights[i] = e^((logits[i] - largest) * scale), which takes most of sampling's time. The
// bits are the same for every instruction set, since nothing is fused.
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

constexpr size_t kPiece = 256;

// Returns a limit that at least `count` logits reach, and not many more: the count-th of the
// largest logits of four times as many groups. Groups are strided, so that the compiler takes
// vectors of them at a time.
float LimitOf(absl::Span<const float> logits, size_t count, std::vector<float>& largest) {
  largest.assign(std::min(logits.size(), 4 * count), -std::numeric_limits<float>::infinity());
  for (size_t begin = 0; begin < logits.size(); begin += largest.size()) {
    const absl::Span<const float> piece = logits.subspan(begin, largest.size());
    for (size_t i = 0; i < piece.size(); ++i) largest[i] = std::max(largest[i], piece[i]);
  }
  std::nth_element(largest.begin(), largest.begin() + count - 1, largest.end(), std::greater<>());
  return largest[count - 1];
}

Weigher ChosenWeigher() {
  static const Weigher weigh = ChooseWeigher();
  return weigh;
}

}  // namespace

// Selects by radix, where there are many candidates: sums 2^11 buckets of the key's highest bits,
// then of the next ones inside the bucket where the target is reached.
template <typename Measure>
Candidate Candidates::Reach(double target, bool more, Measure measure) {
  const auto reached = [&](double sum) { return more ? sum > target : sum >= target; };
  double before = 0;  // the sum of candidates ahead of the bucket
  const std::vector<Candidate>* from = &list_;
  for (int shift : {21, 10, 0}) {
    if (from->size() <= kFew) break;
    const auto digit = [shift](const Candidate& c) { return c.key >> shift & 0x7FF; };
    sums_.assign(size_t{1} << 11, 0.0);
    size_t last = 0;  // the last bucket with candidates, where a sum that is short by rounding ends
    for (const Candidate& c : *from) {
      sums_[digit(c)] += measure(c);
      last = std::max<size_t>(last, digit(c));
    }
    size_t hit = 0;
    while (hit < last && !reached(before + sums_[hit])) before += sums_[hit++];
    inside_.clear();
    for (const Candidate& c : *from) {
      if (digit(c) == hit) inside_.push_back(c);
    }
    bucket_.swap(inside_);
    from = &bucket_;
  }
  if (from == &list_) bucket_ = list_;
  if (bucket_.size() <= kFew) std::sort(bucket_.begin(), bucket_.end(), Before);
  for (const Candidate& c : bucket_) {
    before += measure(c);
    if (reached(before)) return c;
  }
  return bucket_.back();
}

void Candidates::Assign(absl::Span<const float> logits, float largest, double temperature) {
  double weights[kPiece];
  const double scale = 1 / temperature;
  list_.clear();
  list_.reserve(logits.size());
  for (size_t begin = 0; begin < logits.size(); begin += kPiece) {
    const absl::Span<const float> piece = logits.subspan(begin, kPiece);
    ChosenWeigher()(piece, largest, scale, weights);
    for (size_t i = 0; i < piece.size(); ++i) {
      list_.push_back({DescendingKey(piece[i]), static_cast<int32_t>(begin + i), weights[i]});
    }
  }
}

void Candidates::Assign(absl::Span<const Candidate> candidates) {
  list_.assign(candidates.begin(), candidates.end());
}

void Candidates::AssignFirst(absl::Span<const float> logits, int32_t first_id, int64_t count) {
  list_.clear();
  if (logits.empty()) return;
  const size_t wanted = std::min(static_cast<size_t>(count), logits.size());
  const float limit = LimitOf(logits, wanted, groups_);
  constexpr size_t kStride = 16;
  for (size_t begin = 0; begin < logits.size(); begin += kStride) {
    const absl::Span<const float> piece = logits.subspan(begin, kStride);
    int reach = 0;
    for (float logit : piece) reach += logit >= limit ? 1 : 0;
    if (reach == 0) continue;
    for (size_t i = 0; i < piece.size(); ++i) {
      if (piece[i] < limit) continue;
      list_.push_back({DescendingKey(piece[i]), static_cast<int32_t>(first_id + begin + i), 0});
    }
  }
  if (list_.size() <= wanted) return;
  bucket_ = list_;
  std::nth_element(bucket_.begin(), bucket_.begin() + wanted - 1, bucket_.end(), Before);
  KeepUpTo(bucket_[wanted - 1]);
}

void Candidates::SortById() {
  std::sort(list_.begin(), list_.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

void Candidates::Weigh(float largest, double temperature) {
  const double scale = 1 / temperature;
  for (Candidate& c : list_) c.weight = Exp((double{LogitOf(c.key)} - largest) * scale);
}

// Four chains are summed, since an addition takes longer than a load.
double Candidates::SumOfWeights() const {
  double sums[4] = {};
  for (size_t i = 0; i < list_.size(); ++i) sums[i % 4] += list_[i].weight;
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

Candidate Candidates::AtWeight(double target, bool more) {
  return Reach(target, more, [](const Candidate& c) { return c.weight; });
}

void Candidates::KeepUpTo(const Candidate& last) {
  std::erase_if(list_, [&](const Candidate& c) { return Before(last, c); });
}

void Candidates::KeepFirst(int64_t count) {
  if (count >= static_cast<int64_t>(list_.size())) return;
  KeepUpTo(Reach(static_cast<double>(count), /*more=*/false, [](const Candidate&) { return 1; }));
}

void Candidates::KeepHeavy(double least) {
  std::erase_if(list_, [&](const Candidate& c) { return c.weight < least; });
}

// |-ln p - entropy| is |logit - expected logit| / temperature: the order needs neither logarithms
// nor the temperature.
void Candidates::KeepTypical(double typical_p) {
  // Infinite logits, which have no mean, go with the weightless ones.
  std::erase_if(list_, [](const Candidate& c) { return c.weight == 0; });
  const double sum = SumOfWeights();
  double mean = 0;
  for (const Candidate& c : list_) mean += c.weight * LogitOf(c.key);
  mean /= sum;
  const auto distance = [mean](const Candidate& c) {
    return std::bit_cast<uint32_t>(static_cast<float>(std::abs(LogitOf(c.key) - mean)));
  };
  kept_ = list_;
  for (Candidate& c : list_) c.key = distance(c);
  const Candidate last = AtWeight(typical_p * sum);
  list_.swap(kept_);
  std::erase_if(list_, [&](const Candidate& c) { return Before(last, {distance(c), c.id, 0}); });
}

double SumOfExponentials(absl::Span<const float> logits, float largest) {
  if (!(largest > -std::numeric_limits<float>::infinity())) return 0;
  double weights[kPiece];
  double sums[4] = {};
  for (size_t begin = 0; begin < logits.size(); begin += kPiece) {
    const absl::Span<const float> piece = logits.subspan(begin, kPiece);
    ChosenWeigher()(piece, largest, 1.0, weights);
    for (size_t i = 0; i < piece.size(); ++i) sums[i % 4] += weights[i];
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

}  // namespace skein::kernels

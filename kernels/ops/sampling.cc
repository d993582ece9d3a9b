#include "kernels/ops/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::kernels {
namespace {

// A token with the place of its logit in descending order: tokens are ordered by (key, id).
struct Candidate {
  uint32_t key;
  int32_t id;
  double weight;  // of its share in the sum of all
};

bool Before(const Candidate& a, const Candidate& b) {
  return a.key != b.key ? a.key < b.key : a.id < b.id;
}

uint32_t DescendingKey(float logit) {
  // + 0 makes one zero of both.
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);
  return bits & 0x80000000u ? bits : bits ^ 0x7FFFFFFFu;
}

double WeightOf(const Candidate& c) { return c.weight; }
double OneOf(const Candidate&) { return 1; }

// Four chains, since an addition takes longer than a load.
double SumOfWeights(const std::vector<Candidate>& candidates) {
  double sums[4] = {};
  for (size_t i = 0; i < candidates.size(); ++i) sums[i % 4] += candidates[i].weight;
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// The first candidate in order up to which `measure` sums to at least `target` (`more`: to more
// than it), or the last. Candidates stand in order of id. A radix selection: sums of 2^11 buckets
// of the key's highest bits, then of the next ones inside the bucket where the target is reached.
template <typename Measure>
Candidate Reach(const std::vector<Candidate>& candidates, double target, bool more,
                Measure measure) {
  const auto reached = [&](double sum) { return more ? sum > target : sum >= target; };
  double before = 0;  // what candidates ahead of `bucket` sum to
  std::vector<Candidate> bucket;
  const std::vector<Candidate>* from = &candidates;
  for (int shift : {21, 10, 0}) {
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
  for (const Candidate& c : bucket) {
    before += measure(c);
    if (reached(before)) return c;
  }
  return bucket.back();
}

void KeepUpTo(std::vector<Candidate>& candidates, const Candidate& last) {
  std::erase_if(candidates, [&](const Candidate& c) { return Before(last, c); });
}

// e^x for x <= 0, within 1e-11 of it; 0 below -709. Without a branch or a call, so that the
// compiler vectorises it, and with the same bits whatever the C library.
inline double Exp(double x) {
  // -1023 ln 2, where 2^n below has no bits left and is 0.
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

// Weights are e^((logit - largest) / temperature).
std::vector<Candidate> Candidates(absl::Span<const float> logits, float largest,
                                  double temperature) {
  constexpr size_t kPiece = 256;
  double weights[kPiece];
  const double scale = 1 / temperature;
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t begin = 0; begin < logits.size(); begin += kPiece) {
    const absl::Span<const float> piece = logits.subspan(begin, kPiece);
    for (size_t i = 0; i < piece.size(); ++i) {
      weights[i] = Exp((double{piece[i]} - double{largest}) * scale);
    }
    for (size_t i = 0; i < piece.size(); ++i) {
      candidates.push_back({DescendingKey(piece[i]), static_cast<int32_t>(begin + i), weights[i]});
    }
  }
  return candidates;
}

absl::Status CheckTokens(absl::Span<const int32_t> tokens, size_t vocabulary) {
  for (int32_t token : tokens) {
    if (token < 0 || static_cast<size_t>(token) >= vocabulary) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", token, " of the history, with ", vocabulary, " logits"));
    }
  }
  return absl::OkStatus();
}

void Penalise(const SamplingParams& params, absl::Span<const int32_t> prompt,
              absl::Span<const int32_t> output, std::vector<float>& logits) {
  std::vector<int32_t> counts(logits.size(), 0);  // in the output
  std::vector<bool> repeated(logits.size(), false);
  for (const auto& tokens : {prompt, output}) {
    for (int32_t token : tokens) {
      if (repeated[token]) continue;
      repeated[token] = true;
      float& logit = logits[token];
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
  }
  for (int32_t token : output) ++counts[token];
  for (int32_t token : output) {
    const auto count = static_cast<float>(counts[token]);
    if (count == 0) continue;
    logits[token] -= params.presence_penalty + count * params.frequency_penalty;
    counts[token] = 0;  // done
  }
}

// The largest logit; Internal as Sample says.
absl::StatusOr<float> Largest(absl::Span<const float> logits) {
  float largest = -std::numeric_limits<float>::infinity();
  bool nan = false;
  for (float logit : logits) {
    largest = logit > largest ? logit : largest;
    nan |= logit != logit;
  }
  if (!nan && std::isfinite(largest)) return largest;
  return absl::InternalError(absl::StrCat("cannot sample from ", logits.size(), " logits: ",
                                          nan           ? "one is NaN"
                                          : largest > 0 ? "one is infinite"
                                                        : "none is finite"));
}

int32_t Greedy(absl::Span<const float> logits, float largest) {
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), largest) - logits.begin());
}

// What is left after temperature (> 0), top_k, top_p and min_p, in order of id.
std::vector<Candidate> Remaining(absl::Span<const float> logits, float largest,
                                 const SamplingParams& params) {
  std::vector<Candidate> candidates = Candidates(logits, largest, params.temperature);
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < candidates.size()) {
    KeepUpTo(candidates, Reach(candidates, params.top_k, /*more=*/false, OneOf));
  }
  if (params.top_p < 1.0f) {
    const double target = double{params.top_p} * SumOfWeights(candidates);
    KeepUpTo(candidates, Reach(candidates, target, /*more=*/false, WeightOf));
  }
  if (params.min_p > 0.0f) {
    // The most likely token's weight is 1.
    std::erase_if(candidates, [&](const Candidate& c) { return c.weight < params.min_p; });
  }
  return candidates;
}

// Logits after the penalties, in `storage` where there are any, and the largest of them.
struct Scores {
  absl::Span<const float> logits;
  float largest = 0;
};
absl::StatusOr<Scores> Score(absl::Span<const float> logits, const SamplingParams& params,
                             absl::Span<const int32_t> prompt, absl::Span<const int32_t> output,
                             std::vector<float>& storage) {
  SKEIN_RETURN_IF_ERROR(CheckTokens(prompt, logits.size()));
  SKEIN_RETURN_IF_ERROR(CheckTokens(output, logits.size()));
  Scores scores{.logits = logits};
  if (params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
      params.frequency_penalty != 0.0f) {
    storage.assign(logits.begin(), logits.end());
    Penalise(params, prompt, output, storage);
    scores.logits = storage;
  }
  SKEIN_ASSIGN_OR_RETURN(scores.largest, Largest(scores.logits));
  return scores;
}

absl::Status AddLogprobs(absl::Span<const float> logits, int32_t count, SampledToken& token) {
  SKEIN_ASSIGN_OR_RETURN(const float largest, Largest(logits));
  std::vector<Candidate> candidates = Candidates(logits, largest, 1.0);
  const double log_sum = std::log(SumOfWeights(candidates));
  const auto logprob = [&](int32_t id) {
    return static_cast<float>(double{logits[id]} - double{largest} - log_sum);
  };
  token.logprob = logprob(token.id);
  if (count == 0) return absl::OkStatus();
  if (static_cast<size_t>(count) < candidates.size()) {
    KeepUpTo(candidates, Reach(candidates, count, /*more=*/false, OneOf));
  }
  std::sort(candidates.begin(), candidates.end(), Before);
  for (const Candidate& c : candidates) token.top_logprobs.push_back({c.id, logprob(c.id)});
  return absl::OkStatus();
}

}  // namespace

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

float UniformDraw(uint64_t seed, uint64_t position) {
  const auto words =
      Philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
             {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<float>(words[0] >> 8) * 0x1p-24f;
}

absl::StatusOr<std::vector<TokenProbability>> Survivors(absl::Span<const float> logits,
                                                        const SamplingParams& params,
                                                        absl::Span<const int32_t> prompt,
                                                        absl::Span<const int32_t> output) {
  std::vector<float> storage;
  SKEIN_ASSIGN_OR_RETURN(const Scores scores, Score(logits, params, prompt, output, storage));
  if (params.temperature == 0.0f) {
    return std::vector<TokenProbability>{{Greedy(scores.logits, scores.largest), 1.0}};
  }
  std::vector<Candidate> candidates = Remaining(scores.logits, scores.largest, params);
  std::erase_if(candidates, [](const Candidate& c) { return c.weight == 0; });
  std::sort(candidates.begin(), candidates.end(), Before);
  const double sum = SumOfWeights(candidates);
  std::vector<TokenProbability> survivors;
  for (const Candidate& c : candidates) survivors.push_back({c.id, c.weight / sum});
  return survivors;
}

absl::StatusOr<SampledToken> Sample(absl::Span<const float> logits, const SamplingParams& params,
                                    absl::Span<const int32_t> prompt,
                                    absl::Span<const int32_t> output, uint64_t position) {
  std::vector<float> storage;
  SKEIN_ASSIGN_OR_RETURN(const Scores scores, Score(logits, params, prompt, output, storage));
  SampledToken token;
  if (params.temperature == 0.0f) {
    token.id = Greedy(scores.logits, scores.largest);
  } else {
    const std::vector<Candidate> candidates = Remaining(scores.logits, scores.largest, params);
    const double draw = UniformDraw(params.seed, position);
    token.id = Reach(candidates, draw * SumOfWeights(candidates), /*more=*/true, WeightOf).id;
  }
  if (params.logprobs >= 0) {
    SKEIN_RETURN_IF_ERROR(AddLogprobs(logits, params.logprobs, token));
  }
  return token;
}

}  // namespace skein::kernels

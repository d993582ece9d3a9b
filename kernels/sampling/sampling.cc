#include "kernels/sampling/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/sampling/candidates.h"
#include "kernels/sampling/penalties.h"
#include "kernels/sampling/truncation.h"

namespace skein::kernels {
namespace {

absl::Status CheckTokens(absl::Span<const int32_t> tokens, size_t vocabulary, const char* where) {
  for (int32_t token : tokens) {
    if (token < 0 || static_cast<size_t>(token) >= vocabulary) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", token, " of ", where, ", with ", vocabulary, " logits"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTokens(const SamplingParams& params, size_t vocabulary) {
  for (const TokenBias& bias : params.logit_bias) {
    SKEIN_RETURN_IF_ERROR(CheckTokens(absl::MakeConstSpan(&bias.id, 1), vocabulary, "logit_bias"));
  }
  SKEIN_RETURN_IF_ERROR(CheckTokens(params.stop_ids, vocabulary, "stop_ids"));
  for (const std::vector<int32_t>& breaker : params.dry.breakers) {
    SKEIN_RETURN_IF_ERROR(CheckTokens(breaker, vocabulary, "a dry breaker"));
  }
  return absl::OkStatus();
}

// The largest logit; Internal as Sample says.
absl::StatusOr<float> Largest(absl::Span<const float> logits) {
  // In chains that the compiler makes vectors of.
  constexpr size_t kChains = 16;
  float chains[kChains];
  std::fill(chains, chains + kChains, -std::numeric_limits<float>::infinity());
  uint32_t nans[kChains] = {};
  for (size_t begin = 0; begin < logits.size(); begin += kChains) {
    const absl::Span<const float> piece = logits.subspan(begin, kChains);
    for (size_t i = 0; i < piece.size(); ++i) {
      chains[i] = piece[i] > chains[i] ? piece[i] : chains[i];
      nans[i] |= piece[i] != piece[i] ? 1 : 0;
    }
  }
  const float largest = *std::max_element(chains, chains + kChains);
  const bool nan = std::find(nans, nans + kChains, 1u) != nans + kChains;
  if (!nan && std::isfinite(largest)) return largest;
  return absl::InternalError(absl::StrCat("cannot sample from ", logits.size(), " logits: ",
                                          nan           ? "one is NaN"
                                          : largest > 0 ? "one is infinite"
                                                        : "none is finite"));
}

int32_t Greedy(absl::Span<const float> logits, float largest) {
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), largest) - logits.begin());
}

// Logits after all that comes before the temperature, in `storage` where anything does, and the
// largest of them.
struct Scores {
  absl::Span<const float> logits;
  float largest = 0;
};
absl::StatusOr<Scores> Score(absl::Span<const float> logits, const SamplingParams& params,
                             absl::Span<const int32_t> prompt, absl::Span<const int32_t> output,
                             uint64_t position, std::vector<float>& storage) {
  SKEIN_RETURN_IF_ERROR(CheckTokens(prompt, logits.size(), "the history"));
  SKEIN_RETURN_IF_ERROR(CheckTokens(output, logits.size(), "the history"));
  SKEIN_RETURN_IF_ERROR(CheckTokens(params, logits.size()));
  Scores scores{.logits = logits};
  if (Adjusts(params, position)) {
    storage.assign(logits.begin(), logits.end());
    Adjust(params, prompt, output, position, absl::MakeSpan(storage));
    scores.logits = storage;
  }
  SKEIN_ASSIGN_OR_RETURN(scores.largest, Largest(scores.logits));
  return scores;
}

absl::StatusOr<float> CurrentMu(const SamplingParams& params, std::optional<float> mu) {
  const float current = mu.value_or(2 * params.mirostat_tau);
  if (std::isfinite(current)) return current;
  return absl::InvalidArgumentError(absl::StrCat("mirostat's mu is ", current));
}

// What the draw may take at temperatures > 0, in order of id.
std::vector<Candidate> Remaining(const Scores& scores, const SamplingParams& params, float mu) {
  const auto& [logits, largest] = scores;
  if (params.mirostat_tau > 0.0f) {
    std::vector<Candidate> candidates = Candidates(logits, largest, params.temperature);
    KeepUnsurprising(mu, candidates);
    return candidates;
  }
  std::vector<Candidate> candidates =
      params.top_k > 0 ? FirstCandidates(logits, largest, params.temperature, params.top_k)
                       : Candidates(logits, largest, params.temperature);
  Truncate(logits, params, candidates);
  return candidates;
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
  KeepFirst(count, candidates);
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

float UniformDraw(uint64_t seed, uint64_t position, uint32_t sample) {
  const auto words =
      Philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), sample, 0},
             {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<float>(words[0] >> 8) * 0x1p-24f;
}

absl::StatusOr<std::vector<TokenProbability>> Survivors(absl::Span<const float> logits,
                                                        const SamplingParams& params,
                                                        absl::Span<const int32_t> prompt,
                                                        absl::Span<const int32_t> output,
                                                        std::optional<float> mu) {
  std::vector<float> storage;
  SKEIN_ASSIGN_OR_RETURN(const Scores scores,
                         Score(logits, params, prompt, output, output.size(), storage));
  SKEIN_ASSIGN_OR_RETURN(const float current_mu, CurrentMu(params, mu));
  if (params.temperature == 0.0f) {
    return std::vector<TokenProbability>{{Greedy(scores.logits, scores.largest), 1.0}};
  }
  std::vector<Candidate> candidates = Remaining(scores, params, current_mu);
  std::erase_if(candidates, [](const Candidate& c) { return c.weight == 0; });
  std::sort(candidates.begin(), candidates.end(), Before);
  const double sum = SumOfWeights(candidates);
  std::vector<TokenProbability> survivors;
  for (const Candidate& c : candidates) survivors.push_back({c.id, c.weight / sum});
  return survivors;
}

absl::StatusOr<SampledToken> Sample(absl::Span<const float> logits, const SamplingParams& params,
                                    absl::Span<const int32_t> prompt,
                                    absl::Span<const int32_t> output, uint64_t position,
                                    std::optional<float> mu) {
  std::vector<float> storage;
  SKEIN_ASSIGN_OR_RETURN(const Scores scores,
                         Score(logits, params, prompt, output, position, storage));
  SampledToken token;
  SKEIN_ASSIGN_OR_RETURN(token.mu, CurrentMu(params, mu));
  if (params.temperature == 0.0f) {
    token.id = Greedy(scores.logits, scores.largest);
  } else {
    const std::vector<Candidate> candidates = Remaining(scores, params, token.mu);
    const double sum = SumOfWeights(candidates);
    const double draw = UniformDraw(params.seed, position, params.sample);
    const Candidate chosen = AtWeight(candidates, draw * sum, /*more=*/true);
    token.id = chosen.id;
    if (params.mirostat_tau > 0.0f) token.mu = NextMu(params, token.mu, chosen, sum);
  }
  if (params.logprobs >= 0) {
    SKEIN_RETURN_IF_ERROR(AddLogprobs(logits, params.logprobs, token));
  }
  return token;
}

absl::StatusOr<SampledToken> LogprobsOf(absl::Span<const float> logits, int32_t id, int32_t count) {
  SKEIN_RETURN_IF_ERROR(CheckTokens(absl::MakeConstSpan(&id, 1), logits.size(), "the prompt"));
  SampledToken token{.id = id};
  SKEIN_RETURN_IF_ERROR(AddLogprobs(logits, count, token));
  return token;
}

}  // namespace skein::kernels

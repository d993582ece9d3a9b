#include "kernels/sampling/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/tree_sum.h"
#include "kernels/sampling/candidates.h"
#include "kernels/sampling/penalties.h"
#include "kernels/sampling/shards.h"
#include "kernels/sampling/truncation.h"

namespace skein::kernels {
namespace {

absl::Status CheckTokens(absl::Span<const int32_t> tokens, int64_t vocabulary, const char* where) {
  for (int32_t token : tokens) {
    if (token < 0 || token >= vocabulary) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", token, " of ", where, ", with ", vocabulary, " logits"));
    }
  }
  return absl::OkStatus();
}

// A thread keeps it from call to call, so that draws allocate nothing once the first ones have.
struct Memory {
  std::vector<float> adjusted;
  AdjustMemory adjust;
  Candidates candidates;
  std::vector<Candidate> merged;
  std::vector<double> sums;
};
Memory& ThreadMemory() {
  static thread_local Memory memory;
  return memory;
}

// ---- The largest logit ----

struct Peak {
  float largest = -std::numeric_limits<float>::infinity();
  bool nan = false;

  void Join(const Peak& other) {
    largest = std::max(largest, other.largest);
    nan |= other.nan;
  }
};

Peak PeakOf(absl::Span<const float> logits) {
  // The compiler makes vectors of these chains.
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
  return {*std::max_element(chains, chains + kChains),
          std::find(nans, nans + kChains, 1u) != nans + kChains};
}

// Returns Internal as Sample says.
absl::Status Check(const Peak& peak, int64_t vocabulary) {
  if (!peak.nan && std::isfinite(peak.largest)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot sample from ", vocabulary, " logits: ",
                                          peak.nan           ? "one is NaN"
                                          : peak.largest > 0 ? "one is infinite"
                                                             : "none is finite"));
}

// ---- Draws ----

// Rules out tokens by the mask. Token first + i has logits[i].
void Forbid(absl::Span<const uint32_t> mask, int64_t first, absl::Span<float> logits) {
  for (size_t i = 0; i < logits.size(); ++i) {
    const size_t token = first + i;
    if ((mask[token / 32] >> (token % 32) & 1) == 0) {
      logits[i] = -std::numeric_limits<float>::infinity();
    }
  }
}

// Returns logits after all that comes before the temperature; token first + i has logits[i].
absl::Span<const float> Adjusted(const RowQuestion& question, int64_t first,
                                 absl::Span<const float> logits, Memory& memory) {
  const bool adjusts = Adjusts(*question.sampling, question.position);
  if (!adjusts && question.mask.empty()) return logits;
  memory.adjusted.assign(logits.begin(), logits.end());
  if (adjusts) {
    Adjust(*question.sampling, question.prompt, question.output, question.position,
           static_cast<int32_t>(first), absl::MakeSpan(memory.adjusted), memory.adjust);
  }
  if (!question.mask.empty()) Forbid(question.mask, first, absl::MakeSpan(memory.adjusted));
  return memory.adjusted;
}

int32_t Greedy(absl::Span<const float> logits, float largest) {
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), largest) - logits.begin());
}

absl::StatusOr<float> CurrentMu(const serving::SamplingParams& params, std::optional<float> mu) {
  const float current = mu.value_or(2 * params.mirostat_tau);
  if (std::isfinite(current)) return current;
  return absl::InvalidArgumentError(absl::StrCat("mirostat's mu is ", current));
}

void Draw(const RowQuestion& question, Candidates& candidates, serving::SampledToken& token) {
  const serving::SamplingParams& params = *question.sampling;
  const double sum = candidates.SumOfWeights();
  const double draw = UniformDraw(params.seed, question.position, params.answer);
  const Candidate chosen = candidates.AtWeight(draw * sum, /*more=*/true);
  token.id = chosen.id;
  if (params.mirostat_tau > 0.0f) token.mu = NextMu(params, token.mu, chosen, sum);
}

// ---- Log probabilities ----

// `sum` is of e^(logit - largest), over the row.
class LogSoftmax {
 public:
  LogSoftmax(float largest, double sum) : largest_(largest), log_sum_(std::log(sum)) {}
  float operator()(float logit) const {
    return static_cast<float>(double{logit} - double{largest_} - log_sum_);
  }

 private:
  const float largest_;
  const double log_sum_;
};

void TakeTop(const std::vector<Candidate>& top, const LogSoftmax& softmax,
             serving::SampledToken& token) {
  for (const Candidate& c : top) token.top_logprobs.push_back({c.id, softmax(LogitOf(c.key))});
}

// ---- Summaries ----

// Writes a summary's cells one after the other.
class Cells {
 public:
  explicit Cells(SummaryCell* next) : next_(next) {}
  void Put(float value, int32_t id) { *next_++ = {value, id}; }
  void Put(double value) { *next_++ = std::bit_cast<SummaryCell>(value); }

 private:
  SummaryCell* next_;
};

int64_t Drawable(const RowQuestion& question) {
  if (question.sampling == nullptr) return 0;
  return question.sampling->temperature == 0.0f ? 1 : question.sampling->top_k;
}

// The places where the parts of a summary begin.
struct Offsets {
  Offsets(const RowQuestion& question, int32_t blocks) {
    const bool tells = question.logprobs >= 0;
    peak = 0;
    candidates = question.sampling == nullptr ? 0 : 1;
    raw = candidates + Drawable(question);
    block_sums = raw + (!tells ? 0 : std::max<int64_t>(Drawable(question), 1));
    top = block_sums + (tells ? 2 * int64_t{blocks} : 0);
    end = top + std::max<int64_t>(question.logprobs, 0);
  }
  int64_t peak = 0;        // the largest logit that is drawn from, where there is a draw
  int64_t candidates = 0;  // [Drawable]: logits that are drawn from
  int64_t raw = 0;         // [Drawable], or of the token: logits as they came
  int64_t block_sums = 0;  // [blocks] of peaks, [blocks] of sums
  int64_t top = 0;         // [logprobs]
  int64_t end = 0;
};

// Puts the first tokens in order, sorted by id, and pads with cells without an id.
void PutFirst(absl::Span<const float> logits, int64_t first, int64_t count, Memory& memory,
              Cells& cells) {
  memory.candidates.AssignFirst(logits, static_cast<int32_t>(first), count);
  for (const Candidate& c : memory.candidates.list()) cells.Put(LogitOf(c.key), c.id);
  for (auto i = static_cast<int64_t>(memory.candidates.list().size()); i < count; ++i) {
    cells.Put(0, -1);
  }
}

void PutDraw(const RowQuestion& question, const VocabularyPart& part,
             absl::Span<const float> logits, Memory& memory, SummaryCell* out) {
  const absl::Span<const float> adjusted = Adjusted(question, part.first, logits, memory);
  const Peak peak = PeakOf(adjusted);
  Cells cells(out);
  cells.Put(peak.largest, peak.nan ? 1 : 0);
  const int64_t count = Drawable(question);
  if (question.sampling->temperature > 0.0f) {
    PutFirst(adjusted, part.first, count, memory, cells);
  } else if (const int32_t id = Greedy(adjusted, peak.largest);
             id < static_cast<int64_t>(adjusted.size())) {
    cells.Put(peak.largest, static_cast<int32_t>(part.first + id));
  } else {
    cells.Put(0, -1);
  }
}

void PutLogprobs(const RowQuestion& question, const VocabularyPart& part,
                 absl::Span<const float> logits, Memory& memory, const Offsets& at,
                 SummaryCell* out) {
  const auto raw_of = [&](int32_t id) {
    const int64_t i = int64_t{id} - part.first;
    return i >= 0 && i < static_cast<int64_t>(logits.size()) ? SummaryCell{logits[i], id}
                                                             : SummaryCell{};
  };
  if (question.sampling == nullptr) {
    out[at.raw] = raw_of(question.token);
  } else {
    for (int64_t i = 0; i < Drawable(question); ++i) {
      out[at.raw + i] = raw_of(out[at.candidates + i].id);
    }
  }
  Cells peaks(out + at.block_sums), sums(out + at.block_sums + part.blocks);
  for (int32_t b = 0; b < part.blocks; ++b) {
    const int64_t begin = std::min<int64_t>(b * part.block, logits.size());
    const absl::Span<const float> block = logits.subspan(begin, part.block);
    const Peak peak = PeakOf(block);
    peaks.Put(peak.largest, peak.nan ? 1 : 0);
    sums.Put(SumOfExponentials(block, peak.largest));
  }
  Cells top(out + at.top);
  if (question.logprobs > 0) PutFirst(logits, part.first, question.logprobs, memory, top);
}

// Calls fn(cell) for cells [begin, begin + count) of every summary that have an id.
template <typename Fn>
void ForEachCell(absl::Span<const SummaryCell* const> summaries, int64_t begin, int64_t count,
                 const Fn& fn) {
  for (const SummaryCell* summary : summaries) {
    for (int64_t i = begin; i < begin + count; ++i) {
      if (summary[i].id >= 0) fn(summary[i]);
    }
  }
}

absl::Status DecideDraw(const RowQuestion& question, const Offsets& at,
                        absl::Span<const SummaryCell* const> summaries, Memory& memory,
                        serving::SampledToken& token) {
  Peak peak;
  for (const SummaryCell* summary : summaries) {
    peak.Join({summary[at.peak].value, summary[at.peak].id > 0});
  }
  SKEIN_RETURN_IF_ERROR(Check(peak, question.vocabulary));
  memory.merged.clear();
  ForEachCell(summaries, at.candidates, Drawable(question), [&](const SummaryCell& cell) {
    memory.merged.push_back({DescendingKey(cell.value), cell.id, 0});
  });
  const serving::SamplingParams& params = *question.sampling;
  if (params.temperature == 0.0f) {
    token.id = std::min_element(memory.merged.begin(), memory.merged.end(), Before)->id;
    return absl::OkStatus();
  }
  Candidates& candidates = memory.candidates;
  candidates.Assign(memory.merged);
  candidates.KeepFirst(params.top_k);
  candidates.Weigh(peak.largest, params.temperature);
  Restrict(params, token.mu, candidates);
  Draw(question, candidates, token);
  return absl::OkStatus();
}

absl::Status DecideLogprobs(const RowQuestion& question, const Offsets& at, int32_t blocks,
                            absl::Span<const SummaryCell* const> summaries, Memory& memory,
                            serving::SampledToken& token) {
  Peak all;
  for (const SummaryCell* summary : summaries) {
    for (int64_t i = at.block_sums; i < at.block_sums + blocks; ++i) {
      all.Join({summary[i].value, summary[i].id > 0});
    }
  }
  SKEIN_RETURN_IF_ERROR(Check(all, question.vocabulary));
  memory.sums.clear();
  for (const SummaryCell* summary : summaries) {
    const SummaryCell* const peaks = summary + at.block_sums;
    for (int32_t b = 0; b < blocks; ++b) {
      const auto sum = std::bit_cast<double>(peaks[blocks + b]);
      memory.sums.push_back(sum == 0 ? 0 : sum * Exp(double{peaks[b].value} - double{all.largest}));
    }
  }
  const double sum = TreeSum(0, static_cast<int64_t>(memory.sums.size()),
                             [&](int64_t block) { return memory.sums[block]; });
  const LogSoftmax softmax(all.largest, sum);
  ForEachCell(summaries, at.raw, at.block_sums - at.raw, [&](const SummaryCell& cell) {
    if (cell.id == token.id) token.logprob = softmax(cell.value);
  });
  memory.merged.clear();
  ForEachCell(summaries, at.top, question.logprobs, [&](const SummaryCell& cell) {
    memory.merged.push_back({DescendingKey(cell.value), cell.id, 0});
  });
  std::sort(memory.merged.begin(), memory.merged.end(), Before);
  memory.merged.resize(std::min<size_t>(memory.merged.size(), question.logprobs));
  TakeTop(memory.merged, softmax, token);
  return absl::OkStatus();
}

// Answers by summaries, as one shard.
absl::StatusOr<serving::SampledToken> AnswerBySummary(const RowQuestion& question,
                                                      absl::Span<const float> logits) {
  static thread_local std::vector<SummaryCell> summary;
  const VocabularyPart whole = VocabularyPart::Whole(question.vocabulary);
  summary.resize(SummaryCells(question, whole.blocks));
  Summarise(question, whole, logits, summary.data());
  const SummaryCell* const cells = summary.data();
  return Decide(question, whole.blocks, absl::MakeConstSpan(&cells, 1));
}

}  // namespace

// ---- shards.h ----

bool NeedsAllLogits(const RowQuestion& question) {
  if (question.sampling == nullptr || question.sampling->temperature == 0.0f) return false;
  return question.sampling->mirostat_tau > 0.0f || question.sampling->top_k < 1 ||
         question.sampling->top_k > kMaxMerged;
}

bool TakesMostLikely(const serving::SamplingParams& params) {
  // What is adjusted anywhere is at the first position.
  return params.temperature == 0.0f && params.logprobs < 0 && !Adjusts(params, 0);
}

absl::StatusOr<serving::SampledToken> Take(const RowQuestion& question, const DeviceDraw& draw) {
  serving::SampledToken token{.id = question.token};
  if (const serving::SamplingParams* const params = question.sampling; params != nullptr) {
    SKEIN_RETURN_IF_ERROR(
        Check({.largest = draw.largest, .nan = std::isnan(draw.largest)}, question.vocabulary));
    token.id = draw.id;
    SKEIN_ASSIGN_OR_RETURN(token.mu, CurrentMu(*params, question.mu));
    if (params->mirostat_tau > 0.0f && params->temperature > 0.0f) token.mu = draw.mu;
  }
  if (question.logprobs < 0) return token;
  const DeviceDraw::Told& told = draw.told;
  SKEIN_RETURN_IF_ERROR(
      Check({.largest = told.largest, .nan = std::isnan(told.largest)}, question.vocabulary));
  const LogSoftmax softmax(told.largest, told.sum);
  token.logprob = softmax(told.logit);
  std::vector<Candidate>& most = ThreadMemory().merged;
  most.clear();
  for (int64_t i = 0; i < std::min<int64_t>(question.logprobs, question.vocabulary); ++i) {
    most.push_back({DescendingKey(told.top[i].logit), told.top[i].id, 0});
  }
  std::sort(most.begin(), most.end(), Before);
  TakeTop(most, softmax, token);
  return token;
}

int64_t SummaryCells(const RowQuestion& question, int32_t blocks) {
  return Offsets(question, blocks).end;
}

void Summarise(const RowQuestion& question, const VocabularyPart& part,
               absl::Span<const float> logits, SummaryCell* out) {
  Memory& memory = ThreadMemory();
  if (question.sampling != nullptr) PutDraw(question, part, logits, memory, out);
  if (question.logprobs < 0) return;
  PutLogprobs(question, part, logits, memory, Offsets(question, part.blocks), out);
}

absl::StatusOr<serving::SampledToken> Decide(const RowQuestion& question, int32_t blocks,
                                             absl::Span<const SummaryCell* const> summaries) {
  Memory& memory = ThreadMemory();
  const Offsets at(question, blocks);
  serving::SampledToken token{.id = question.token};
  if (question.sampling != nullptr) {
    SKEIN_ASSIGN_OR_RETURN(token.mu, CurrentMu(*question.sampling, question.mu));
    SKEIN_RETURN_IF_ERROR(DecideDraw(question, at, summaries, memory, token));
  }
  if (question.logprobs >= 0) {
    SKEIN_RETURN_IF_ERROR(DecideLogprobs(question, at, blocks, summaries, memory, token));
  }
  return token;
}

absl::StatusOr<serving::SampledToken> Answer(const RowQuestion& question,
                                             absl::Span<const float> logits) {
  if (!NeedsAllLogits(question)) return AnswerBySummary(question, logits);
  Memory& memory = ThreadMemory();
  serving::SampledToken token;
  const absl::Span<const float> adjusted = Adjusted(question, 0, logits, memory);
  const Peak peak = PeakOf(adjusted);
  SKEIN_RETURN_IF_ERROR(Check(peak, question.vocabulary));
  SKEIN_ASSIGN_OR_RETURN(token.mu, CurrentMu(*question.sampling, question.mu));
  RestrictRow(*question.sampling, adjusted, peak.largest, token.mu, memory.candidates);
  Draw(question, memory.candidates, token);
  if (question.logprobs < 0) return token;
  SKEIN_ASSIGN_OR_RETURN(
      serving::SampledToken told,
      AnswerBySummary(
          {.vocabulary = question.vocabulary, .token = token.id, .logprobs = question.logprobs},
          logits));
  told.mu = token.mu;
  return told;
}

// ---- sampling.h ----

absl::Status CheckTokens(const serving::SamplingParams& params, absl::Span<const int32_t> prompt,
                         absl::Span<const int32_t> output, int64_t vocabulary) {
  SKEIN_RETURN_IF_ERROR(CheckTokens(prompt, vocabulary, "the history"));
  SKEIN_RETURN_IF_ERROR(CheckTokens(output, vocabulary, "the history"));
  for (const serving::TokenBias& bias : params.logit_bias) {
    SKEIN_RETURN_IF_ERROR(CheckTokens(absl::MakeConstSpan(&bias.id, 1), vocabulary, "logit_bias"));
  }
  SKEIN_RETURN_IF_ERROR(CheckTokens(params.stop_ids, vocabulary, "stop_ids"));
  for (const std::vector<int32_t>& breaker : params.dry_breakers) {
    SKEIN_RETURN_IF_ERROR(CheckTokens(breaker, vocabulary, "a dry breaker"));
  }
  return absl::OkStatus();
}

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

float UniformDraw(uint64_t seed, uint64_t position, uint32_t answer) {
  const auto words =
      Philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), answer, 0},
             {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<float>(words[0] >> 8) * 0x1p-24f;
}

absl::StatusOr<serving::SampledToken> Sample(absl::Span<const float> logits,
                                             const serving::SamplingParams& params,
                                             absl::Span<const int32_t> prompt,
                                             absl::Span<const int32_t> output, uint64_t position,
                                             std::optional<float> mu) {
  const auto vocabulary = static_cast<int64_t>(logits.size());
  SKEIN_RETURN_IF_ERROR(CheckTokens(params, prompt, output, vocabulary));
  return Answer({.vocabulary = vocabulary,
                 .sampling = &params,
                 .prompt = prompt,
                 .output = output,
                 .position = position,
                 .mu = mu,
                 .logprobs = params.logprobs},
                logits);
}

}  // namespace skein::kernels

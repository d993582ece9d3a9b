#include "kernels/host/sampler.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/stream.h"
#include "base/view.h"
#include "kernels/ops/sizes.h"
#include "kernels/packing/layout.h"

namespace skein::kernels {

absl::StatusOr<Sampler> Sampler::Create(const Program& program, const Limits& limits,
                                        Collectives* collectives) {
  Sampler sampler;
  sampler.vocabulary_ = program.vocab_size;
  sampler.part_ = program.vocab_part;
  sampler.stride_ = program.vocab_part.block * program.vocab_part.blocks;
  sampler.shards_ = program.vocab_shards;
  sampler.collectives_ = collectives;
  sampler.slots_.resize(limits.slots);
  if (sampler.shards_ > 1) {
    SKEIN_ASSIGN_OR_RETURN(sampler.gathered_,
                           HostMemory::Allocate(GatherBytes(program), "logits of all shards"));
  }
  return sampler;
}

absl::Status Sampler::Update(const Batch& batch) {
  for (const SlotStart& start : batch.starts) {
    Slot slot = {
        .prompt = start.prompt, .output = start.output, .mu = start.mu, .sampling = start.sampling};
    if (start.prompt_of >= 0) slot.prompt = slots_[start.prompt_of].prompt;
    if (start.prompt_of >= 0 && slot.prompt.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "slot ", start.slot, " has the prompt of slot ", start.prompt_of, ", which has none"));
    }
    slot.status = CheckTokens(slot.sampling, slot.prompt, slot.output, vocabulary_);
    slots_[start.slot] = std::move(slot);
  }
  return absl::OkStatus();
}

void Sampler::TakeBack(const SlotUpdate& update) {
  Slot& slot = slots_[update.slot];
  if (update.mu.has_value()) slot.mu = update.mu;
  const int64_t left = DrawsLeft(*update.length, static_cast<int64_t>(slot.prompt.size()));
  if (left < static_cast<int64_t>(slot.output.size())) slot.output.resize(left);
}

void Sampler::AskOfPrompt(const BatchSequence& sequence, int64_t first_position,
                          int64_t first_output, BatchResult& result) {
  result.prompt_logprobs.push_back({.slot = sequence.slot, .first = first_position + 1});
  const Slot& slot = slots_[sequence.slot];
  for (int64_t row = 0; row < sequence.rows; ++row) {
    const int64_t next = first_position + row + 1;
    if (next >= static_cast<int64_t>(slot.prompt.size())) break;  // nothing follows the last token
    rows_.push_back({.question = {.vocabulary = vocabulary_,
                                  .token = slot.prompt[next],
                                  .logprobs = sequence.prompt_logprobs},
                     .output = first_output + row,
                     .slot = sequence.slot,
                     .valid = slot.status.ok()});
  }
}

absl::Status Sampler::AskForDraws(const BatchSequence& sequence, absl::Span<const int32_t> tokens,
                                  int64_t outputs, const Rows& rows) {
  absl::Span<const uint32_t> masks;
  const int64_t words = MaskWords(vocabulary_);
  if (sequence.masked) {
    SKEIN_ASSIGN_OR_RETURN(masks, rows.mask(sequence.slot));
    if (static_cast<int64_t>(masks.size()) != (1 + sequence.guesses) * words) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot ", sequence.slot, ": a mask of ", masks.size(), " words for ",
                       1 + sequence.guesses, " draws from ", vocabulary_, " tokens"));
    }
  }
  Slot& slot = slots_[sequence.slot];
  const size_t known = slot.output.size();
  const bool may_guess = slot.sampling.mirostat_tau == 0.0f;
  const absl::Span<const int32_t> guesses = tokens.last(may_guess ? sequence.guesses : 0);
  // A row's history has the guesses up to its own.
  slot.output.insert(slot.output.end(), guesses.begin(), guesses.end());
  for (size_t i = 0; i <= guesses.size(); ++i) {
    const absl::Span<const int32_t> history = absl::MakeConstSpan(slot.output).first(known + i);
    rows_.push_back({.question = {.vocabulary = vocabulary_,
                                  .sampling = &slot.sampling,
                                  .prompt = slot.prompt,
                                  .output = history,
                                  .position = history.size(),
                                  .mu = slot.mu,
                                  .mask = masks.empty() ? masks : masks.subspan(i * words, words),
                                  .logprobs = slot.sampling.logprobs},
                     .output = outputs - 1 - sequence.guesses + static_cast<int64_t>(i),
                     .slot = sequence.slot,
                     .draws = true,
                     .guess = i == 0 ? -1 : guesses[i - 1],
                     .valid = slot.status.ok()});
    rows_.back().gathers = NeedsAllLogits(rows_.back().question);
  }
  return absl::OkStatus();
}

absl::Status Sampler::Ask(const Batch& batch, const Rows& rows, BatchResult& result) {
  int64_t output = 0;
  absl::Span<const int32_t> tokens = batch.token_ids;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const BatchSequence& sequence = batch.sequences[i];
    if (sequence.prompt_logprobs >= 0) {
      AskOfPrompt(sequence, rows.first_position(static_cast<int64_t>(i)), output, result);
    }
    output += sequence.outputs;
    if (sequence.draws) {
      SKEIN_RETURN_IF_ERROR(AskForDraws(sequence, tokens.first(sequence.rows), output, rows));
    }
    tokens.remove_prefix(sequence.rows);
  }
  return absl::OkStatus();
}

void Sampler::AnswerAlone(const Rows& rows) {
  rows.for_each(static_cast<int64_t>(rows_.size()), [&](int64_t i) {
    Row& row = rows_[i];
    if (row.valid && row.made != nullptr) row.answer = Take(row.question, *row.made);
    if (row.open() && shards_ == 1) row.answer = Answer(row.question, rows.logits(row.output));
  });
}

absl::Status Sampler::AnswerBySummaries(const Rows& rows) {
  int64_t cells = 0;
  for (Row& row : rows_) {
    row.cells = cells;
    if (row.open() && !row.gathers) cells += SummaryCells(row.question, part_.blocks);
  }
  if (cells == 0) return absl::OkStatus();
  own_.resize(cells);
  all_.resize(shards_ * cells);
  rows.for_each(static_cast<int64_t>(rows_.size()), [&](int64_t i) {
    const Row& row = rows_[i];
    if (!row.open() || row.gathers) return;
    Summarise(row.question, part_, rows.logits(row.output), own_.data() + row.cells);
  });
  const int64_t bytes = cells * static_cast<int64_t>(sizeof(SummaryCell));
  SKEIN_RETURN_IF_ERROR(collectives_->AllGather(ConstView{own_.data(), DType::kU8, 1, bytes},
                                                View{all_.data(), DType::kU8, shards_, bytes},
                                                kHostStream));
  summaries_.resize(shards_);
  for (Row& row : rows_) {
    if (!row.open() || row.gathers) continue;
    for (int32_t shard = 0; shard < shards_; ++shard) {
      summaries_[shard] = all_.data() + shard * cells + row.cells;
    }
    row.answer = Decide(row.question, part_.blocks, summaries_);
  }
  return absl::OkStatus();
}

absl::Status Sampler::AnswerByGathering(const Rows& rows) {
  const int64_t width = shards_ * stride_;
  float* const own = gathered_.floats();
  float* const by_shard = own + kGatheredRows * stride_;
  float* const by_row = by_shard + kGatheredRows * width;
  std::vector<Row*>& waiting = gathering_;
  for (size_t next = 0; next < rows_.size();) {
    waiting.clear();
    for (; next < rows_.size() && waiting.size() < kGatheredRows; ++next) {
      if (rows_[next].open() && rows_[next].gathers) waiting.push_back(&rows_[next]);
    }
    const auto count = static_cast<int64_t>(waiting.size());
    if (count == 0) break;
    for (int64_t i = 0; i < count; ++i) {
      const absl::Span<const float> logits = rows.logits(waiting[i]->output);
      std::copy(logits.begin(), logits.end(), own + i * stride_);
    }
    SKEIN_RETURN_IF_ERROR(collectives_->AllGather(
        ConstView{own, DType::kF32, count, stride_},
        View{by_shard, DType::kF32, shards_ * count, stride_}, kHostStream));
    for (int32_t shard = 0; shard < shards_; ++shard) {
      for (int64_t i = 0; i < count; ++i) {
        std::copy_n(by_shard + (shard * count + i) * stride_, stride_,
                    by_row + i * width + shard * stride_);
      }
    }
    rows.for_each(count, [&](int64_t i) {
      waiting[i]->answer =
          Answer(waiting[i]->question, absl::MakeConstSpan(by_row + i * width, vocabulary_));
    });
  }
  return absl::OkStatus();
}

std::string Sampler::ErrorOf(const Row& row) const {
  const absl::Status& status = row.valid ? row.answer.status() : slots_[row.slot].status;
  return std::string(status.message());
}

// These append to the results that the row's sequence has already, in the order of rows.
void Sampler::TakeOfPrompt(Row& row, PromptLogprobs& told) {
  if (!told.error.empty()) return;
  told.error = ErrorOf(row);
  if (told.error.empty()) told.tokens.push_back(*std::move(row.answer));
}

void Sampler::TakeDraw(Row& row, BatchResult& result) {
  Slot& slot = slots_[row.slot];
  if (row.guess < 0) {
    slot.output.resize(row.question.position);  // drops guesses
    result.sampled.emplace_back().slot = row.slot;
  }
  SampledTokens& drawn = result.sampled.back();
  const bool reached = slot.output.size() == row.question.position && drawn.error.empty();
  if (!reached || (row.guess >= 0 && slot.output.back() != row.guess)) return;
  std::string error = ErrorOf(row);
  if (error.empty()) {
    slot.mu = row.answer->mu;
    slot.output.push_back(row.answer->id);
    drawn.tokens.push_back(*std::move(row.answer));
  } else {
    drawn.error = std::move(error);
    drawn.tokens.clear();
    slot.output.push_back(0);  // it may be in the next batch already: any token serves there
  }
}

absl::Status Sampler::Sample(const Batch& batch, const Rows& rows, BatchResult& result) {
  rows_.clear();
  result.sampled.clear();
  result.prompt_logprobs.clear();
  SKEIN_RETURN_IF_ERROR(Ask(batch, rows, result));
  for (Row& row : rows_) row.made = rows.made(row.output);
  AnswerAlone(rows);
  if (shards_ > 1) {
    SKEIN_RETURN_IF_ERROR(AnswerBySummaries(rows));
    SKEIN_RETURN_IF_ERROR(AnswerByGathering(rows));
  }
  size_t told = 0;
  for (Row& row : rows_) {
    if (row.draws) {
      TakeDraw(row, result);
      continue;
    }
    while (result.prompt_logprobs[told].slot != row.slot) ++told;
    TakeOfPrompt(row, result.prompt_logprobs[told]);
  }
  return absl::OkStatus();
}

}  // namespace skein::kernels

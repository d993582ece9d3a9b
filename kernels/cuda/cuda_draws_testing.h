// Follows the slots of an executable, and holds what its batches give against what the sampler
// makes of their logits.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/backend_testing.h"
#include "kernels/ops/batch.h"
#include "kernels/sampling/sampling.h"
#include "kernels/sampling/shards.h"

namespace skein::kernels {

// Of one that the device made: the sums in it may differ in their last bits.
inline void ExpectSame(const serving::SampledToken& got, const serving::SampledToken& want) {
  const auto near = [](float a, float b) {
    if (a != b) {
      EXPECT_NEAR(a, b, 1e-6f * (1 + std::abs(b)));
    }
  };
  EXPECT_EQ(got.id, want.id);
  near(got.logprob, want.logprob);
  near(got.mu, want.mu);
  ASSERT_EQ(got.top_logprobs.size(), want.top_logprobs.size());
  for (size_t i = 0; i < want.top_logprobs.size(); ++i) {
    EXPECT_EQ(got.top_logprobs[i].id, want.top_logprobs[i].id);
    near(got.top_logprobs[i].logprob, want.top_logprobs[i].logprob);
  }
}

// The parameters whose state lives with the device.
inline const serving::SamplingParams kStateful = {.repetition_penalty = 1.3f,
                                                  .frequency_penalty = 1,
                                                  .temperature = 0.4f,
                                                  .seed = 3,
                                                  .logprobs = 2,
                                                  .logit_bias = {{17, 4}, {3, 6}},
                                                  .mirostat_tau = 3,
                                                  .dry_multiplier = 0.7f,
                                                  .dry_allowed_length = 1,
                                                  .dry_breakers = {{9}, {3, 17}}};
// More biases than the device keeps: the host draws.
inline const serving::SamplingParams kByHost = {
    .temperature = 0.3f, .logit_bias = std::vector<serving::TokenBias>(1600, {17, 0.001f})};

using Masks = std::map<int32_t, std::vector<uint32_t>>;  // by slot

// What the slots' draws depend on.
class Followed {
 public:
  struct Slot {
    serving::SamplingParams params;
    std::vector<int32_t> prompt, output;
    std::optional<float> mu;
    int64_t told = 1;  // the next token of the prompt to tell of
  };
  Slot& operator[](int32_t slot) { return slots_[slot]; }

  // `row` gives the logits of an output. Slots are longer by what was drawn afterwards.
  void Check(const Batch& batch, const BatchResult& result,
             const std::function<absl::Span<const float>(int64_t)>& row, const Masks& masks = {}) {
    for (const SlotStart& start : batch.starts) {
      slots_[start.slot] = {
          .params = start.sampling,
          .prompt = start.prompt_of < 0 ? start.prompt : slots_[start.prompt_of].prompt,
          .output = start.output,
          .mu = start.mu};
    }
    size_t drawn = 0, told = 0;
    int64_t outputs = 0;
    absl::Span<const int32_t> tokens = batch.token_ids;
    for (const BatchSequence& sequence : batch.sequences) {
      SCOPED_TRACE(testing::Message() << "slot " << sequence.slot);
      if (sequence.prompt_logprobs >= 0) {
        ASSERT_LT(told, result.prompt_logprobs.size());
        CheckTold(sequence, result.prompt_logprobs[told++],
                  [&](int64_t r) { return row(outputs + r); });
      }
      outputs += sequence.outputs;
      const absl::Span<const int32_t> guesses = tokens.first(sequence.rows).last(sequence.guesses);
      tokens.remove_prefix(sequence.rows);
      if (!sequence.draws) continue;
      ASSERT_LT(drawn, result.sampled.size());
      const int64_t first = outputs - 1 - sequence.guesses;
      const auto mask = masks.find(sequence.slot);
      CheckDrawn(
          guesses, result.sampled[drawn++], [&](int64_t r) { return row(first + r); },
          mask == masks.end() ? absl::Span<const uint32_t>() : mask->second);
    }
    EXPECT_EQ(drawn, result.sampled.size());
    EXPECT_EQ(told, result.prompt_logprobs.size());
  }
  // Of a layer's batch 0, which ran last.
  void Check(Layer& layer, const Masks& masks = {}) {
    const Batch& batch = layer.executable().batch(0);
    const std::vector<float> logits = layer.Logits(batch.outputs());
    Check(
        batch, layer.executable().result(0),
        [&](int64_t r) { return absl::MakeConstSpan(logits).subspan(r * kColumns, kVocabulary); },
        masks);
  }

 private:
  using Row = std::function<absl::Span<const float>(int64_t)>;

  void CheckTold(const BatchSequence& sequence, const PromptLogprobs& got, const Row& row) {
    Slot& slot = slots_[sequence.slot];
    EXPECT_EQ(got.slot, sequence.slot);
    EXPECT_EQ(got.error, "");
    EXPECT_EQ(got.first, slot.told);
    int64_t r = 0;
    for (; r < sequence.rows && slot.told < static_cast<int64_t>(slot.prompt.size()); ++r) {
      ASSERT_LT(r, static_cast<int64_t>(got.tokens.size()));
      SKEIN_ASSERT_OK_AND_ASSIGN(const serving::SampledToken want,
                                 Answer({.vocabulary = kVocabulary,
                                         .token = slot.prompt[slot.told++],
                                         .logprobs = sequence.prompt_logprobs},
                                        row(r)));
      ExpectSame(got.tokens[r], want);
    }
    EXPECT_EQ(static_cast<int64_t>(got.tokens.size()), r);
  }

  void CheckDrawn(absl::Span<const int32_t> guesses, const SampledTokens& got, const Row& row,
                  absl::Span<const uint32_t> masks) {
    Slot& slot = slots_[got.slot];
    EXPECT_EQ(got.error, "");
    const bool may_guess = slot.params.mirostat_tau == 0.0f;
    size_t i = 0;
    for (bool right = true; right; ++i) {
      ASSERT_LT(i, got.tokens.size());
      SKEIN_ASSERT_OK_AND_ASSIGN(
          const serving::SampledToken want,
          Answer({.vocabulary = kVocabulary,
                  .sampling = &slot.params,
                  .prompt = slot.prompt,
                  .output = slot.output,
                  .position = slot.output.size(),
                  .mu = slot.mu,
                  .mask = masks.empty()
                              ? masks
                              : masks.subspan(i * MaskWords(kVocabulary), MaskWords(kVocabulary)),
                  .logprobs = slot.params.logprobs},
                 row(static_cast<int64_t>(i))));
      ExpectSame(got.tokens[i], want);
      slot.output.push_back(want.id);
      slot.mu = got.tokens[i].mu;
      right = may_guess && i < guesses.size() && guesses[i] == want.id;
    }
    EXPECT_EQ(got.tokens.size(), i);
  }

  std::map<int32_t, Slot> slots_;
};

}  // namespace skein::kernels

// Draws of guesses and log probabilities of prompts on the CUDA back end.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/backend_testing.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_draws_testing.h"
#include "kernels/sampling/shards.h"

namespace skein::kernels {
namespace {

class GuessesTest : public CudaBackendTest {
 protected:
  static constexpr int32_t kMasked = 6;  // always
  static constexpr int64_t kTokens = 30;

  static std::vector<serving::SamplingParams> Kinds() {
    serving::SamplingParams without_mirostat = kStateful;
    without_mirostat.mirostat_tau = 0;
    return {{.temperature = 0},
            kStateful,
            without_mirostat,
            {.temperature = 0.2f,
             .seed = 9,
             .logit_bias = {{3, 8}, {9, 8}, {14, 8}, {20, 8}},  // these repeat
             .dry_multiplier = 2,
             .dry_allowed_length = 1},
            {.temperature = 0.9f, .top_p = 0.9f, .seed = 4, .logprobs = 0},
            kByHost,
            without_mirostat};
  }
  // Of the masked slot's token at this place in its output.
  static std::vector<uint32_t> MaskAt(int64_t place) {
    std::vector<uint32_t> mask(MaskWords(kVocabulary));
    std::mt19937 random(static_cast<uint32_t>(place));
    for (uint32_t& word : mask) word = random() & random() & random();
    return mask;
  }

  GuessesTest() {
    for (const serving::SamplingParams& params : Kinds()) {
      const auto slot = static_cast<int32_t>(slots_.size());
      Batch start = Start(slot, 5 + slot, 0, params);
      start.updates[0].pages = {3 * slot, 3 * slot + 1, 3 * slot + 2};
      Join(start_, start);
      slots_.push_back(slot);
    }
    start_.sequences[kMasked].masked = true;
  }

  // Runs a batch whose draws come at these places of their slots' outputs.
  static absl::StatusOr<Ticket> Enqueue(Layer& layer, int i, const Batch& batch,
                                        const std::vector<int64_t>& places) {
    layer.executable().batch(i) = batch;
    for (const BatchSequence& sequence : batch.sequences) {
      if (!sequence.masked) continue;
      std::vector<uint32_t> mask;
      for (int32_t g = 0; g <= sequence.guesses; ++g) {
        const std::vector<uint32_t> one = MaskAt(places[sequence.slot] + g);
        mask.insert(mask.end(), one.begin(), one.end());
      }
      layer.executable().SetMask(i, sequence.slot, mask);
    }
    return layer.executable().Enqueue(i);
  }

  std::vector<int32_t> slots_;
  Batch start_;
};

// With --deterministic logits have the same bits in any batch, and so have draws.
TEST_F(GuessesTest, TokensAreThoseOfStepsWithoutGuesses) {
  const auto layer = [] {
    return Layer(*MakeCudaBackend({.decode = DecodeForm::kGraph}), nullptr, KvDType::kBF16,
                 DType::kBF16, /*window=*/0,
                 /*shard=*/0, /*shards=*/1, /*deterministic=*/true);
  };
  Layer plain = layer(), guessing = layer();
  std::vector<std::vector<serving::SampledToken>> want(slots_.size());
  Followed followed;
  for (int64_t step = 0; step < kTokens; ++step) {
    Batch batch = step == 0 ? start_ : Decode(slots_, kNewestToken);
    batch.sequences[kMasked].masked = true;
    SKEIN_ASSERT_OK_AND_ASSIGN(const Ticket ticket,
                               Enqueue(plain, 0, batch, std::vector<int64_t>(slots_.size(), step)));
    SKEIN_ASSERT_OK(plain.executable().Wait(ticket, kHostStream, absl::InfiniteFuture()).status());
    followed.Check(plain, {{kMasked, MaskAt(step)}});
    for (const int32_t slot : slots_) {
      want[slot].push_back(plain.executable().result(0).sampled.at(slot).tokens.at(0));
    }
  }

  std::vector<int64_t> places(slots_.size(), 0);
  std::mt19937 random(1);
  const auto take = [&](const Batch& batch, const BatchResult& result) {
    absl::Span<const int32_t> tokens = batch.token_ids;
    for (size_t s = 0; s < batch.sequences.size(); ++s) {
      const BatchSequence& sequence = batch.sequences[s];
      SCOPED_TRACE(testing::Message() << "slot " << sequence.slot);
      const auto guesses = tokens.first(sequence.rows).last(sequence.guesses);
      tokens.remove_prefix(sequence.rows);
      int64_t& place = places[sequence.slot];
      size_t right = 0;
      if (sequence.slot != 1) {  // mirostat
        while (right < guesses.size() && guesses[right] == want[sequence.slot][place + right].id) {
          ++right;
        }
      }
      ASSERT_EQ(result.sampled.at(s).tokens.size(), right + 1);
      for (const serving::SampledToken& got : result.sampled[s].tokens) {
        const serving::SampledToken& expected = want[sequence.slot][place++];
        EXPECT_EQ(got.id, expected.id);
        EXPECT_EQ(got.logprob, expected.logprob);
        EXPECT_EQ(got.mu, expected.mu);
        EXPECT_EQ(got.top_logprobs, expected.top_logprobs);
      }
    }
  };
  SKEIN_ASSERT_OK_AND_ASSIGN(const Ticket started, Enqueue(guessing, 0, start_, places));
  SKEIN_ASSERT_OK(
      guessing.executable().Wait(started, kHostStream, absl::InfiniteFuture()).status());
  take(start_, guessing.executable().result(0));
  // Two batches at once: one with guesses, some of them wrong, and one without behind it.
  while (true) {
    Batch batches[2];
    for (const int32_t slot : slots_) {
      const int64_t left = kTokens - places[slot] - 2;  // the other batch draws one
      if (left < 0) continue;
      const auto guesses = static_cast<int32_t>(std::min<int64_t>(random() % 4, left));
      batches[0].sequences.push_back({.slot = slot,
                                      .rows = 1 + guesses,
                                      .outputs = 1 + guesses,
                                      .draws = true,
                                      .guesses = guesses,
                                      .masked = slot == kMasked});
      batches[0].token_ids.push_back(kNewestToken);
      const uint32_t wrong = random() % 5;
      for (uint32_t g = 0; g < static_cast<uint32_t>(guesses); ++g) {
        const int32_t id = want[slot][places[slot] + g].id;
        batches[0].token_ids.push_back(g == wrong ? (id + 1) % kVocabulary : id);
      }
      if (slot == kMasked) continue;  // whose next mask nobody knows yet
      batches[1].sequences.push_back({.slot = slot, .outputs = 1, .draws = true});
      batches[1].token_ids.push_back(kNewestToken);
    }
    if (batches[0].sequences.empty()) break;
    Ticket tickets[2];
    for (int i = 0; i < 2; ++i) {
      SKEIN_ASSERT_OK_AND_ASSIGN(tickets[i], Enqueue(guessing, i, batches[i], places));
    }
    for (int i = 0; i < 2; ++i) {
      SCOPED_TRACE(testing::Message() << "batch " << i);
      SKEIN_ASSERT_OK(
          guessing.executable().Wait(tickets[i], kHostStream, absl::InfiniteFuture()).status());
      take(batches[i], guessing.executable().result(i));
    }
  }
  for (const int64_t place : places) EXPECT_GE(place, kTokens - 1);
}

// In pieces, beside draws; with more of the most likely tokens than the device tells, and with
// fewer.
TEST_F(GuessesTest, PromptsAreToldOf) {
  Followed followed;
  const auto run = [&](const Batch& batch) {
    SKEIN_ASSERT_OK(gpu_->Run(batch));
    followed.Check(*gpu_);
  };
  for (const int32_t most : {0, 3, DeviceDraw::kMostTold, DeviceDraw::kMostTold + 1}) {
    SCOPED_TRACE(most);
    followed = {};
    Batch batch;
    for (int32_t slot = 0; slot < 3; ++slot) {
      Join(batch, Start(slot, 25, 10 * slot, slot == 1 ? kStateful : serving::SamplingParams()));
    }
    const std::vector<int32_t> tokens = batch.token_ids;
    batch.token_ids.clear();
    for (int32_t slot = 0; slot < 3; ++slot) {
      batch.sequences[slot] = {
          .slot = slot, .rows = 16, .outputs = 16, .prompt_logprobs = slot == 2 ? 2 : most};
      const auto begin = tokens.begin() + 25 * slot;
      batch.token_ids.insert(batch.token_ids.end(), begin, begin + 16);
    }
    run(batch);
    Batch rest;
    for (int32_t slot = 0; slot < 3; ++slot) {
      rest.sequences.push_back({.slot = slot,
                                .rows = 9,
                                .outputs = 9,
                                .draws = true,
                                .prompt_logprobs = slot == 2 ? 2 : most});
      const auto begin = tokens.begin() + 25 * slot + 16;
      rest.token_ids.insert(rest.token_ids.end(), begin, begin + 9);
    }
    run(rest);
    run(Decode({0, 1, 2}, kNewestToken));
  }
}

}  // namespace
}  // namespace skein::kernels

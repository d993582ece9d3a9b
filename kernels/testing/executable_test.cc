// Tests what executables of all back ends do beside computing: batches, slots, pages and draws.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/sampling/sampling.h"
#include "kernels/sampling/shards.h"
#include "kernels/testing/harness.h"
#include "kernels/testing/late_backend.h"

namespace skein::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kVocabulary = 50;
constexpr int64_t kColumns = 56;  // 8 blocks
constexpr int64_t kHeadDim = 8;
constexpr int64_t kPageSize = 4;

// The model is one layer of attention alone between the embedding and its transpose: a token's
// logits depend on all positions before it, through the cache.
class ExecutableTest : public testing::TestWithParam<BackendCase> {
 protected:
  ExecutableTest() {
    p_.kv_spec = {
        .layers = 1, .kv_heads = 1, .head_dim = kHeadDim, .page_size = kPageSize, .pages = 12};
    const BufferId x = p_.AddBuffer(kHeadDim);
    const BufferId qkv = p_.AddBuffer(3 * kHeadDim);
    const BufferId attended = p_.AddBuffer(kHeadDim);
    const BufferId last = p_.AddBuffer(kHeadDim, BufferSpec::Rows::kOutputs);
    const BufferId logits = p_.AddBuffer(kColumns, BufferSpec::Rows::kOutputs);
    const WeightId table =
        p_.AddWeight({.rows = kColumns, .cols = kHeadDim}, RandomFloats(1, kColumns * kHeadDim));
    const WeightId mix = p_.AddWeight({.rows = 3 * kHeadDim, .cols = kHeadDim},
                                      RandomFloats(2, 3 * kHeadDim * kHeadDim));
    p_.Add(EmbedOp{table, 0, kVocabulary, x});
    p_.Add(MatMulOp{x, mix, qkv});
    p_.Add(RopeAppendKvOp{qkv, 1, 1, kHeadDim, p_.AddVector({1, 0.1f, 0.01f, 0.001f}), 0});
    p_.Add(AttentionOp{qkv, 1, 1, kHeadDim, 0.4f, 0, attended});
    p_.Add(GatherRowsOp{attended, last});
    p_.Add(MatMulOp{last, table, logits});
    p_.program.logits = logits;
    p_.program.vocab_size = kVocabulary;
    p_.program.vocab_part = {.block = 7};  // the last block is short
    p_.Bind(*backend_);
  }

  // Runs it as batch `i`.
  absl::Status Run(const Batch& batch, int i = 0) {
    p_.executable->batch(i) = batch;
    const absl::StatusOr<Ticket> ticket = p_.executable->Enqueue(i);
    if (!ticket.ok()) return ticket.status();
    return p_.executable->Wait(*ticket, kHostStream, absl::InfiniteFuture()).status();
  }
  // Runs the batch and returns the tokens that it draws, in the order of its sequences.
  std::vector<int32_t> Draw(const Batch& batch, int i = 0) {
    SKEIN_EXPECT_OK(Run(batch, i));
    std::vector<int32_t> tokens;
    for (const SampledTokens& row : p_.executable->result(i).sampled) {
      EXPECT_EQ(row.error, "");
      for (const serving::SampledToken& token : row.tokens) tokens.push_back(token.id);
    }
    return tokens;
  }
  std::vector<float> Logits(int64_t row = 0) const {
    const std::vector<float> all = p_.Get(p_.program.logits, row + 1);
    return {all.end() - kColumns, all.end() - kColumns + kVocabulary};
  }

  static Batch Start(int32_t slot, std::vector<int32_t> prompt, std::vector<int32_t> pages,
                     const serving::SamplingParams& sampling) {
    const auto rows = static_cast<int32_t>(prompt.size());
    return {.starts = {{.slot = slot, .prompt = prompt, .sampling = sampling}},
            .updates = {{.slot = slot, .pages = std::move(pages)}},
            .sequences = {{.slot = slot, .rows = rows, .outputs = 1, .draws = true}},
            .token_ids = std::move(prompt)};
  }
  static void Join(Batch& batch, const Batch& other) {
    const auto append = [](auto& to, const auto& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(batch.starts, other.starts);
    append(batch.updates, other.updates);
    append(batch.sequences, other.sequences);
    append(batch.token_ids, other.token_ids);
  }
  static Batch Decode(std::vector<int32_t> slots, int32_t token = kNewestToken) {
    Batch batch;
    for (int32_t slot : slots) {
      batch.sequences.push_back({.slot = slot, .outputs = 1, .draws = true});
      batch.token_ids.push_back(token);
    }
    return batch;
  }

  // History changes the logits by each of these.
  const serving::SamplingParams sampling_ = {
      .repetition_penalty = 1.3f, .frequency_penalty = 0.5f, .temperature = 0.9f, .seed = 5};
  const std::unique_ptr<Backend> backend_ = GetParam().make();
  TestProgram p_;
};

TEST_P(ExecutableTest, DrawsAreThoseOfLogitsAndHistory) {
  std::vector<int32_t> output = Draw(Start(2, {7, 8, 9}, {3, 1, 4}, sampling_));
  ASSERT_THAT(output, SizeIs(1));
  EXPECT_EQ(output[0], Sample(Logits(), sampling_, {7, 8, 9}, {}, 0)->id);
  for (int i = 1; i < 8; ++i) {
    const std::vector<int32_t> token = Draw(Decode({2}), i % 2);
    EXPECT_THAT(token, ElementsAre(Sample(Logits(), sampling_, {7, 8, 9}, output, i)->id));
    output.push_back(token[0]);
  }
}

TEST_P(ExecutableTest, TheNewestTokenIsTheOneThatWasDrawn) {
  const std::vector<int32_t> first = Draw(Start(0, {7, 8, 9}, {0, 1, 2}, sampling_));
  SKEIN_ASSERT_OK(Run(Decode({0})));
  const std::vector<float> drawn = Logits();
  // Position 3 is computed again with the token itself, then with another one that SetTokens has
  // set.
  Batch again = Decode({0}, first[0]);
  again.updates = {{.slot = 0, .length = 3}};
  SKEIN_ASSERT_OK(Run(again));
  EXPECT_EQ(Logits(), drawn);
  again.token_ids = {kNewestToken};
  p_.executable->SetTokens({0}, {static_cast<int32_t>((first[0] + 1) % kVocabulary)});
  SKEIN_ASSERT_OK(Run(again));
  EXPECT_NE(Logits(), drawn);
  p_.executable->SetTokens({0}, first);
  SKEIN_ASSERT_OK(Run(again));
  EXPECT_EQ(Logits(), drawn);
}

TEST_P(ExecutableTest, AStartMakesAnotherSequenceOfASlot) {
  const std::vector<int32_t> alone = Draw(Start(1, {3, 4, 5, 6, 3}, {0, 1}, sampling_));
  Draw(Decode({1}));
  // A start drops the slot's history, length and pages; what was drawn before can go on.
  Draw(Start(1, {9, 9, 9, 9, 9, 9}, {2, 3}, sampling_));
  EXPECT_EQ(Draw(Start(1, {3, 4, 5, 6, 3}, {4, 5}, sampling_)), alone);
  const std::vector<int32_t> second = Draw(Decode({1}));
  Batch resumed = Start(0, {3, 4, 5, 6, 3}, {6, 7}, sampling_);
  resumed.starts[0].output = alone;
  resumed.token_ids.push_back(alone[0]);
  ++resumed.sequences[0].rows;
  EXPECT_EQ(Draw(resumed), second);
}

TEST_P(ExecutableTest, APromptIsSharedBySlots) {
  serving::SamplingParams other = sampling_;
  other.answer = 1;
  Batch batch = Start(0, {7, 8, 9, 7}, {0, 1}, sampling_);
  batch.starts.push_back({.slot = 3, .prompt_of = 0, .sampling = other});
  Draw(batch);
  const std::vector<float> logits = Logits();
  Batch fork = Decode({3}, 7);  // the prompt's last token once more
  fork.updates = {{.slot = 3, .length = 3, .pages = {0, 1}}};
  EXPECT_THAT(Draw(fork), ElementsAre(Sample(logits, other, {7, 8, 9, 7}, {}, 0)->id));
  EXPECT_EQ(Logits(), logits);

  batch.starts = {{.slot = 2, .prompt_of = 1, .sampling = other}};
  EXPECT_THAT(Run(batch),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the prompt of slot 1")));
}

// Guesses, right or wrong, change nothing about what is drawn.
TEST_P(ExecutableTest, GuessesThatWereRightAreKept) {
  const Batch start = Start(0, {7, 8, 9}, {0, 1, 2, 3}, sampling_);
  std::vector<int32_t> drawn = Draw(start);
  std::map<int64_t, std::vector<float>> logits;  // by position
  while (drawn.size() < 10) {
    drawn.push_back(Draw(Decode({0})).at(0));
    logits[2 + drawn.size() - 1] = Logits();
  }
  for (int32_t right = 0; right <= 3; ++right) {
    SCOPED_TRACE(right);
    ASSERT_EQ(Draw(start).at(0), drawn[0]);
    Batch guessed = Decode({0});
    for (int32_t i = 1; i <= 3; ++i) {
      guessed.token_ids.push_back(i <= right ? drawn[i] : (drawn[i] + 1) % kVocabulary);
    }
    guessed.sequences[0] = {.slot = 0, .rows = 4, .outputs = 4, .draws = true, .guesses = 3};
    const std::vector<int32_t> got = Draw(guessed);
    ASSERT_EQ(got, std::vector(drawn.begin() + 1, drawn.begin() + 2 + right));
    for (int32_t i = 0; i <= right; ++i) EXPECT_EQ(Logits(i), logits[3 + i]);
    for (size_t next = 2 + right; next < drawn.size(); ++next) {
      ASSERT_THAT(Draw(Decode({0}), next % 2), ElementsAre(drawn[next]));
      EXPECT_EQ(Logits(), logits[2 + next]);
    }
  }
  // Mirostat's state goes from draw to draw, so that no guess counts as right.
  serving::SamplingParams mirostat = sampling_;
  mirostat.mirostat_tau = 3;
  Batch other = Start(0, {7, 8, 9}, {0, 1, 2, 3}, mirostat);
  std::vector<int32_t> tokens = Draw(other);
  for (int i = 0; i < 2; ++i) tokens.push_back(Draw(Decode({0})).at(0));
  Draw(other);
  Batch guessed = Decode({0});
  guessed.token_ids.push_back(tokens[1]);
  guessed.sequences[0] = {.slot = 0, .rows = 2, .outputs = 2, .draws = true, .guesses = 1};
  EXPECT_THAT(Draw(guessed), ElementsAre(tokens[1]));
  EXPECT_THAT(Draw(Decode({0})), ElementsAre(tokens[2]));
}

// Returns the mask that allows these tokens.
std::vector<uint32_t> MaskOf(const std::vector<int32_t>& tokens) {
  std::vector<uint32_t> bits(MaskWords(kVocabulary));
  for (int32_t token : tokens) bits[token / 32] |= 1u << token % 32;
  return bits;
}

TEST_P(ExecutableTest, DrawsWaitForTheirMasks) {
  const std::vector<int32_t> allowed = {2, 31, 32, 49};
  const auto want = [&](uint64_t position, std::vector<int32_t> output) {
    std::vector<float> logits = Logits();
    for (int32_t token = 0; token < kVocabulary; ++token) {
      if (std::count(allowed.begin(), allowed.end(), token) == 0) {
        logits[token] = -std::numeric_limits<float>::infinity();
      }
    }
    return Sample(logits, sampling_, {7, 8, 9}, output, position)->id;
  };
  Batch start = Start(0, {7, 8, 9}, {0, 1, 2}, sampling_);
  start.sequences[0].masked = true;
  // This mask comes before the batch runs.
  p_.executable->SetMask(0, 0, MaskOf(allowed));
  std::vector<int32_t> drawn = Draw(start);
  EXPECT_EQ(drawn[0], want(0, {}));
  // This one comes while the batch runs: the mask before was the last batch's. The other sequence
  // of the batch has no mask.
  Batch both = Decode({0});
  both.sequences[0].masked = true;
  Join(both, Start(1, {7, 8, 9}, {3, 4}, sampling_));
  std::atomic<bool> set = false;
  std::thread maker([&] {
    absl::SleepFor(absl::Milliseconds(20));
    set = true;
    p_.executable->SetMask(0, 0, MaskOf(allowed));
  });
  const std::vector<int32_t> two = Draw(both);
  EXPECT_TRUE(set);
  maker.join();
  ASSERT_THAT(two, SizeIs(2));
  EXPECT_EQ(two[1], Sample(Logits(1), sampling_, {7, 8, 9}, {}, 0)->id);
  EXPECT_EQ(two[0], want(1, drawn));
  drawn.push_back(two[0]);
  // A mask is for one batch: this draw has none.
  const std::vector<int32_t> third = Draw(Decode({0}));
  EXPECT_EQ(third[0], Sample(Logits(), sampling_, {7, 8, 9}, drawn, 2)->id);
  // Each guess has a mask of its own.
  drawn.push_back(third[0]);
  Batch guessed = Decode({0});
  guessed.token_ids.push_back(5);
  guessed.sequences[0] = {
      .slot = 0, .rows = 2, .outputs = 2, .draws = true, .guesses = 1, .masked = true};
  std::vector<uint32_t> masks = MaskOf({5});
  for (uint32_t word : MaskOf({11})) masks.push_back(word);
  p_.executable->SetMask(0, 0, masks);
  EXPECT_THAT(Draw(guessed), ElementsAre(5, 11));
}

TEST_P(ExecutableTest, AMaskOfAnotherSizeAndAnAbortEndTheWait) {
  Batch start = Start(0, {7, 8, 9}, {0, 1, 2}, sampling_);
  start.sequences[0].masked = true;
  p_.executable->SetMask(0, 0, {1});
  EXPECT_THAT(Run(start), StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("slot 0: a mask of 1 words for 1 draws from 50")));
  std::thread aborts([&] {
    absl::SleepFor(absl::Milliseconds(20));
    p_.executable->Abort(absl::UnavailableError("the leader is gone"));
  });
  EXPECT_THAT(Run(start, 1), StatusIs(absl::StatusCode::kUnavailable, "the leader is gone"));
  aborts.join();
}

// The host makes the mask once the batch is under way.
TEST_P(ExecutableTest, AMaskComesBehindALateBatch) {
  const auto late = MakeLateBackend(GetParam().make());
  p_.Bind(*late);
  Batch start = Start(0, {7, 8, 9}, {0, 1, 2}, sampling_);
  start.sequences[0].masked = true;
  p_.executable->batch(0) = start;
  SKEIN_ASSERT_OK_AND_ASSIGN(const Ticket ticket, p_.executable->Enqueue(0));
  EXPECT_FALSE(*p_.executable->Wait(ticket, kHostStream, absl::Now() + absl::Milliseconds(30)));
  p_.executable->SetMask(0, 0, MaskOf({17}));
  EXPECT_TRUE(*p_.executable->Wait(ticket, kHostStream, absl::InfiniteFuture()));
  EXPECT_EQ(p_.executable->result(0).sampled.at(0).tokens.at(0).id, 17);
  p_.executable.reset();  // it goes before the back end
}

// Positions that were computed and drawn from are given back, with the pages behind them.
TEST_P(ExecutableTest, PositionsAreTakenBack) {
  serving::SamplingParams mirostat = sampling_;
  mirostat.mirostat_tau = 3;
  for (const serving::SamplingParams& sampling : {sampling_, mirostat}) {
    std::vector<int32_t> drawn = Draw(Start(0, {7, 8, 9}, {0, 1, 2}, sampling));
    const auto mu = [this] { return p_.executable->result(0).sampled[0].tokens[0].mu; };
    std::vector<float> mus = {mu()};
    while (drawn.size() < 7) {
      drawn.push_back(Draw(Decode({0})).at(0));
      mus.push_back(mu());
    }
    const std::vector<float> last = Logits();
    for (const int64_t left : {5, 4, 3}) {
      SCOPED_TRACE(left);
      Draw(Start(0, {7, 8, 9}, {0, 1, 2}, sampling));
      for (size_t i = 1; i < drawn.size(); ++i) Draw(Decode({0}));
      const int64_t output = left + 1 - 3;  // so many tokens are known then
      Batch back = Decode({0}, drawn[output - 1]);
      back.updates = {{.slot = 0, .length = left}};
      if (sampling.mirostat_tau > 0) back.updates[0].mu = mus[output - 1];
      const int64_t pages = (left + kPageSize - 1) / kPageSize;
      back.updates[0].first_page = pages;
      back.updates[0].pages = {8, 9};
      EXPECT_THAT(Draw(back), ElementsAre(drawn[output]));
      for (size_t i = output + 1; i < drawn.size(); ++i) {
        EXPECT_THAT(Draw(Decode({0})), ElementsAre(drawn[i]));
      }
      EXPECT_EQ(Logits(), last);
    }
  }
}

TEST_P(ExecutableTest, PromptLogprobsTellOfTheNextToken) {
  Batch batch = Start(0, {7, 8, 9, 7}, {0, 1}, sampling_);
  batch.sequences[0] = {.slot = 0, .rows = 3, .outputs = 3, .prompt_logprobs = 2};
  batch.token_ids.pop_back();
  SKEIN_ASSERT_OK(Run(batch));
  const BatchResult& result = p_.executable->result(0);
  EXPECT_THAT(result.sampled, IsEmpty());
  ASSERT_THAT(result.prompt_logprobs, SizeIs(1));
  EXPECT_EQ(result.prompt_logprobs[0].first, 1);
  ASSERT_THAT(result.prompt_logprobs[0].tokens, SizeIs(3));
  const int32_t next[] = {8, 9, 7};
  for (int64_t i = 0; i < 3; ++i) {
    const serving::SampledToken& got = result.prompt_logprobs[0].tokens[i];
    const serving::SampledToken want =
        *Answer({.vocabulary = kVocabulary, .token = next[i], .logprobs = 2}, Logits(i));
    EXPECT_EQ(got.id, next[i]);
    EXPECT_EQ(got.logprob, want.logprob);
    EXPECT_EQ(got.top_logprobs.at(1).id, want.top_logprobs.at(1).id);
  }
  // A batch may begin in the middle of the prompt. Nothing follows the prompt's last token.
  batch = {.sequences = {{.slot = 0, .outputs = 1, .prompt_logprobs = 0}}, .token_ids = {7}};
  SKEIN_ASSERT_OK(Run(batch));
  EXPECT_EQ(p_.executable->result(0).prompt_logprobs[0].first, 4);
  EXPECT_THAT(p_.executable->result(0).prompt_logprobs[0].tokens, IsEmpty());
}

TEST_P(ExecutableTest, ADrawThatFailsLeavesTheOthers) {
  serving::SamplingParams impossible = sampling_;
  impossible.min_tokens = 1;
  for (int32_t id = 0; id < kVocabulary; ++id) impossible.stop_ids.push_back(id);
  Batch batch = Start(0, {7}, {0}, impossible);
  Join(batch, Start(1, {8}, {1}, sampling_));
  SKEIN_ASSERT_OK(Run(batch));
  const BatchResult& result = p_.executable->result(0);
  ASSERT_THAT(result.sampled, SizeIs(2));
  EXPECT_THAT(result.sampled[0].tokens, IsEmpty());
  EXPECT_THAT(result.sampled[0].error, HasSubstr("none is finite"));
  EXPECT_THAT(result.sampled[1].tokens, SizeIs(1));
  EXPECT_EQ(result.sampled[1].error, "");
  SKEIN_EXPECT_OK(Run(Decode({0, 1})));  // it may be in the next batch already
}

TEST_P(ExecutableTest, AHistoryBeyondTheVocabularyFailsItsDraws) {
  serving::SamplingParams biased = sampling_;
  biased.logit_bias = {{.id = kVocabulary, .bias = 1}};
  Batch batch = Start(0, {7}, {0}, sampling_);
  batch.starts[0].output = {static_cast<int32_t>(kVocabulary)};
  Join(batch, Start(1, {8}, {1}, biased));
  SKEIN_ASSERT_OK(Run(batch));
  const BatchResult& result = p_.executable->result(0);
  ASSERT_THAT(result.sampled, SizeIs(2));
  EXPECT_THAT(result.sampled[0].error, HasSubstr("token 50 of the history"));
  EXPECT_THAT(result.sampled[1].error, HasSubstr("token 50 of logit_bias"));
}

TEST_P(ExecutableTest, APromptBeyondTheVocabularyFailsItsLogprobs) {
  for (const int32_t token : {-1, static_cast<int32_t>(kVocabulary)}) {
    Batch batch = Start(0, {7, token}, {0}, sampling_);
    batch.sequences[0] = {.slot = 0, .rows = 1, .outputs = 1, .prompt_logprobs = 1};
    batch.token_ids = {7};
    SKEIN_ASSERT_OK(Run(batch));
    const BatchResult& result = p_.executable->result(0);
    ASSERT_THAT(result.prompt_logprobs, SizeIs(1));
    EXPECT_THAT(result.prompt_logprobs[0].error, HasSubstr("of the history"));
    EXPECT_THAT(result.prompt_logprobs[0].tokens, IsEmpty());
  }
}

// Copies take effect one after the other, before the batch's rows: a page is swapped out, taken by
// another sequence, and comes back.
TEST_P(ExecutableTest, PagesAreCopiedInOrder) {
  const Batch first = Start(0, {7, 8, 9, 1, 2}, {0, 1}, sampling_);
  const std::vector<int32_t> drawn = Draw(first);
  KvSpec swap_spec = p_.kv_spec;
  swap_spec.pages = 2;
  auto swap = *backend_->AllocateKv(swap_spec);
  p_.executable = *backend_->Compile(
      p_.program, p_.limits, {.weights = p_.weights.get(), .kv = p_.kv.get(), .swap = swap.get()});
  EXPECT_THAT(Run(first), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("WarmUp")));
  SKEIN_ASSERT_OK(p_.executable->WarmUp());
  EXPECT_EQ(Draw(first), drawn);
  SKEIN_ASSERT_OK(Run(Decode({0})));
  const std::vector<float> logits = Logits();

  const auto out = PageCopy::Kind::kSwapOut, in = PageCopy::Kind::kSwapIn;
  Batch other = Start(1, {3, 3, 3, 3, 3, 3}, {1, 0}, sampling_);
  other.copies = {{out, 0, 1}, {out, 1, 0}};
  Draw(other);
  Batch back = Decode({0}, drawn[0]);
  // These copies go through pages that are read and written in turn.
  back.copies = {
      {in, 1, 5}, {in, 0, 6}, {PageCopy::Kind::kWithin, 6, 7}, {PageCopy::Kind::kWithin, 5, 6}};
  back.updates = {{.slot = 0, .length = 5, .pages = {6, 7}}};
  SKEIN_ASSERT_OK(Run(back));
  EXPECT_EQ(Logits(), logits);
}

TEST_P(ExecutableTest, SlotsThatAreNotInABatchAreLeftAlone) {
  Draw(Start(0, {7, 8, 9}, {0, 1}, sampling_));
  SKEIN_ASSERT_OK(Run(Decode({0})));
  const std::vector<float> logits = Logits();
  Draw(Start(0, {7, 8, 9}, {0, 1}, sampling_));
  Draw(Start(1, {1, 2, 3, 4, 5}, {2, 3}, sampling_));
  Draw(Start(2, {6}, {4}, sampling_));
  Draw(Decode({1, 2}), 1);
  SKEIN_ASSERT_OK(Run(Decode({0})));
  EXPECT_EQ(Logits(), logits);
}

TEST_P(ExecutableTest, ABatchThatBreaksItsContractIsRefused) {
  Draw(Start(0, {7, 8, 9}, {0}, sampling_));
  SKEIN_ASSERT_OK(Run(Decode({0})));
  EXPECT_THAT(Run(Decode({0})), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("positions 4 to 5, and 1 pages of 4")));
  EXPECT_THAT(Run(Decode({99})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no slot 99 of 16")));
}

TEST_P(ExecutableTest, AfterAnAbortNothingIsRun) {
  p_.executable->Abort(absl::UnavailableError("the leader is gone"));
  p_.executable->Abort(absl::InternalError("later"));
  p_.executable->batch(0) = Start(0, {7}, {0}, sampling_);
  EXPECT_THAT(p_.executable->Enqueue(0).status(),
              StatusIs(absl::StatusCode::kUnavailable, "the leader is gone"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ExecutableTest, testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::kernels

// Tests what a replica reports: the order of reports, and log probabilities of prompts.
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "worker/engine/replica_state.h"
#include "worker/engine/replica_test_util.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

// Rows of cached positions would have no logits to report.
TEST(ReplicaReportTest, APromptWhoseLogprobsAreWantedTakesNothingFromThePrefixCache) {
  Replica replica;
  replica.Add(Request(1, {1, 2, 3, 4, 5, 6, 7, 8}, 1));
  replica.Step();
  replica.Add(Request(2, {1, 2, 3, 4, 5, 6, 7, 8}, 1));
  EXPECT_EQ(replica.Begins(replica.Step())[0][0], 4);  // another request does
  const serving::ReplicaLoad before = replica.state.TakeReport().load;
  ASSERT_EQ(before.cached_tokens, 4);

  serving::Request asked = Request(3, {1, 2, 3, 4, 5, 6, 7, 8}, 1);
  asked.prompt_logprobs = 0;
  replica.Add(asked);
  int64_t next = 0;
  while (!replica.state.idle()) {
    const StepOrder order = replica.Step();
    ASSERT_THAT(order.micro_batches, ElementsAre(SizeIs(1)));
    const ChunkOrder& chunk = order.micro_batches[0][0];
    EXPECT_EQ(replica.Begins(order)[0][0], next);
    // The last token has no next one in the prompt.
    EXPECT_EQ(chunk.prompt_logprobs, next < 7 ? 0 : -1);
    next += chunk.rows();
  }
  EXPECT_EQ(next, 8);
  EXPECT_EQ(replica.state.TakeReport().load.cached_tokens, before.cached_tokens);
}

// Returns the positions of the prompt that an output tells of; the token's id is its position here.
std::vector<int32_t> PositionsOf(const StepReport& report) {
  std::vector<int32_t> positions;
  for (const serving::AnswerOutput& output : report.answers) {
    for (const auto& token : output.prompt_logprobs) positions.push_back(token.id);
  }
  return positions;
}

// Returns what the ranks give for an order: for every prompt, which has `prompt` tokens, the tokens
// that follow its rows.
StepResult PromptLogprobsOf(const Replica& replica, const StepOrder& order, int32_t prompt) {
  StepResult result{.step = order.step};
  for (size_t i = 0; i < order.micro_batches.size(); ++i) {
    for (size_t j = 0; j < order.micro_batches[i].size(); ++j) {
      const ChunkOrder& chunk = order.micro_batches[i][j];
      const int64_t begin = replica.Begins(order)[i][j];
      if (chunk.draws) result.sampled.push_back({.slot = chunk.slot, .tokens = {{.id = 50}}});
      if (chunk.prompt_logprobs < 0) continue;
      kernels::PromptLogprobs& piece = result.prompt_logprobs.emplace_back(
          kernels::PromptLogprobs{.slot = chunk.slot, .first = begin + 1});
      for (auto next = static_cast<int32_t>(piece.first); next <= begin + chunk.rows(); ++next) {
        if (next < prompt) piece.tokens.push_back({.id = next});
      }
    }
  }
  return result;
}

TEST(ReplicaReportTest, PromptLogprobsAreGivenOnceHoweverOftenThePromptIsComputed) {
  for (const bool ahead : {false, true}) {  // whether a piece is on its way as the sequence goes
    SCOPED_TRACE(ahead);
    ReplicaLimits limits = Limits();
    limits.max_num_seqs = 1;
    limits.scheduler.logit_rows = 3;
    Replica replica(limits);
    serving::Request asked = Request(1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 2);
    asked.prompt_logprobs = 0;
    asked.eos_token_ids = {};
    replica.Add(asked);
    std::vector<int32_t> positions;
    const auto apply = [&](const StepOrder& order) {
      SKEIN_ASSERT_OK(
          replica.state.Apply(PromptLogprobsOf(replica, order, 10), absl::Milliseconds(1)));
      for (const int32_t position : PositionsOf(replica.state.TakeReport())) {
        positions.push_back(position);
      }
    };
    apply(replica.Next());
    StepOrder on_its_way = replica.Next();
    if (!ahead) apply(on_its_way);
    serving::Request urgent = Request(2, {11, 12}, 2);
    urgent.priority = 100;
    replica.Add(urgent);
    const StepOrder preempts = replica.Next();
    if (ahead) apply(on_its_way);
    apply(preempts);
    EXPECT_EQ(replica.state.TakeReport().load.preemptions_recomputed, 1);

    std::vector<int64_t> computed_again;
    while (!replica.state.idle()) {
      const StepOrder order = replica.Next();
      // Looks at the prompt whose log probabilities are wanted: the urgent one is decoded by now.
      for (size_t i = 0; i < order.micro_batches.at(0).size(); ++i) {
        const int64_t begin = replica.Begins(order)[0][i];
        if (order.micro_batches[0][i].prompt_logprobs >= 0 && begin < 6) {
          computed_again.push_back(begin);
        }
      }
      apply(order);
    }
    // It starts at the front, so that it could be told twice.
    EXPECT_THAT(computed_again, Not(IsEmpty()));
    EXPECT_EQ(computed_again.front(), 0);
    EXPECT_THAT(positions, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  }
}

// The service appends what it reads: tokens of an answer, and of a prompt, in the order in which
// they stand. What a step gave of several sequences comes in the step's order.
TEST(ReplicaReportTest, AReportKeepsTheOrderOfStepsSequencesAndPieces) {
  ReplicaLimits limits = Limits();
  limits.max_num_seqs = 3;
  limits.scheduler.max_num_batched_tokens = 12;
  limits.scheduler.stages = 2;
  limits.scheduler.micro_batches = 2;
  limits.scheduler.max_micro_batch_rows = 6;
  limits.scheduler.logit_rows = 12;
  Replica replica(limits);
  replica.Add(Request(1, {1}, 9));
  replica.Add(Request(2, {2}, 9));
  replica.Step();
  replica.state.TakeReport();
  serving::Request asked = Request(3, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 9);
  asked.prompt_logprobs = 0;
  replica.Add(asked);
  const StepOrder first = replica.Next(), second = replica.Next();
  int pieces = 0;
  for (const auto& batch : first.micro_batches) {
    for (const ChunkOrder& chunk : batch) pieces += chunk.prompt_logprobs >= 0;
  }
  ASSERT_GE(pieces, 2) << "the prompt is in several micro-batches";
  std::vector<std::pair<uint64_t, int32_t>> tokens;
  int32_t next = 50;
  for (const StepOrder* order : {&first, &second}) {
    StepResult result = PromptLogprobsOf(replica, *order, 10);
    for (kernels::SampledTokens& row : result.sampled) row.tokens[0].id = next++;
    SKEIN_ASSERT_OK(replica.state.Apply(result, absl::Milliseconds(1)));
  }
  const StepReport report = replica.state.TakeReport();
  EXPECT_THAT(PositionsOf(report), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  for (const serving::AnswerOutput& output : report.answers) {
    for (const auto& token : output.tokens)
      tokens.emplace_back(output.request_id.value(), token.id);
  }
  EXPECT_THAT(tokens, ElementsAre(Pair(1, 50), Pair(2, 51), Pair(3, 52), Pair(1, 53), Pair(2, 54),
                                  Pair(3, 55)));
}

// What a coordinator holds against its prediction: steps that decode alone, and steps with prompts.
TEST(ReplicaReportTest, StepsAreCounted) {
  Replica replica;
  const auto step = [&](absl::Duration time) { replica.Finish(replica.Next(), 50, time); };
  replica.Add(Request(1, {1, 2, 3, 4, 5}, 9));
  step(absl::Milliseconds(100));  // its prompt
  step(absl::Milliseconds(3));    // at 5 tokens
  step(absl::Milliseconds(4));    // at 6
  replica.Add(Request(2, {1, 2, 3}, 9));
  step(absl::Milliseconds(200));  // a prompt beside a decode
  step(absl::Milliseconds(5));    // at 8 and 3
  const serving::ReplicaLoad load = replica.state.TakeReport().load;
  EXPECT_EQ(load.decode_steps, 3);
  EXPECT_EQ(load.decode_rows, 4);
  EXPECT_EQ(load.decode_context, 5 + 6 + 8 + 3);
  EXPECT_EQ(load.decode_time, absl::Milliseconds(12));
  const serving::PromptSteps& prompts = load.prompt_steps;
  EXPECT_EQ(prompts.steps, 2);
  EXPECT_EQ(prompts.behind_nothing, 2);  // each was ordered when the one before was over
  EXPECT_EQ(prompts.behind_decodes, 0);
  EXPECT_EQ(prompts.prompts, 2);
  EXPECT_EQ(prompts.rows, 5 + 3);
  EXPECT_EQ(prompts.context, (0 + 1 + 2 + 3 + 4) + (0 + 1 + 2));
  EXPECT_EQ(prompts.outputs, 2);
  EXPECT_EQ(prompts.decodes, 1);
  EXPECT_EQ(prompts.decode_context, 7);
  EXPECT_EQ(prompts.time, absl::Milliseconds(300));
}

// A pipeline is full behind steps that were ordered before the last was over.
TEST(ReplicaReportTest, StepsWithPromptsTellWhatWasBefore) {
  ReplicaLimits limits = Limits();
  limits.scheduler.max_num_batched_tokens = 4;
  Replica replica(limits);
  replica.Add(Request(1, {1, 2, 3, 4, 5, 6}, 9));
  const StepOrder first = replica.Next();   // four tokens, behind nothing
  const StepOrder second = replica.Next();  // two, behind a prompt
  const StepOrder decode = replica.Next();
  replica.Add(Request(2, {1, 2, 3}, 9));
  const StepOrder third = replica.Next();  // three, behind a decode
  for (const StepOrder* order : {&first, &second, &decode, &third}) {
    replica.Finish(*order, 50, absl::Milliseconds(1));
  }
  const serving::PromptSteps prompts = replica.state.TakeReport().load.prompt_steps;
  EXPECT_EQ(prompts.steps, 3);
  EXPECT_EQ(prompts.behind_nothing, 1);
  EXPECT_EQ(prompts.behind_decodes, 1);
  EXPECT_EQ(prompts.prompts, 3);
  EXPECT_EQ(prompts.rows, 6 + 3);
  EXPECT_EQ(prompts.context, (0 + 1 + 2 + 3 + 4 + 5) + (0 + 1 + 2));
  EXPECT_EQ(prompts.outputs, 2);  // what is drawn behind each prompt
  EXPECT_EQ(prompts.decodes, 1);
}

// A prompt is one, in however many micro-batches: the last of which may have one row of it.
TEST(ReplicaReportTest, AStepsPromptIsOne) {
  ReplicaLimits limits = Limits();
  limits.scheduler.max_num_batched_tokens = 36;
  limits.scheduler.stages = 2;
  limits.scheduler.micro_batches = 2;
  limits.scheduler.max_micro_batch_rows = 18;
  Replica replica(limits);
  std::vector<int32_t> prompt(33);
  std::iota(prompt.begin(), prompt.end(), 10);
  replica.Add(Request(1, prompt, 3));
  const StepOrder order = replica.Next();
  ASSERT_EQ(order.micro_batches.size(), 3U) << "16, 16 and 1 row";
  replica.Finish(order);
  const serving::PromptSteps prompts = replica.state.TakeReport().load.prompt_steps;
  EXPECT_EQ(prompts.prompts, 1);
  EXPECT_EQ(prompts.rows, 33);
  EXPECT_EQ(prompts.context, 33 * 32 / 2);
  EXPECT_EQ(prompts.decodes, 0);
  EXPECT_EQ(prompts.outputs, 1);
}

TEST(ReplicaReportTest, RowsOfPromptsThatGiveLogProbabilitiesAreOutputs) {
  ReplicaLimits limits = Limits();
  limits.scheduler.logit_rows = 8;
  Replica replica(limits);
  serving::Request asked = Request(1, {1, 2, 3, 4, 5}, 9);
  asked.prompt_logprobs = 0;
  replica.Add(asked);
  const StepOrder order = replica.Next();
  SKEIN_ASSERT_OK(replica.state.Apply(PromptLogprobsOf(replica, order, 10), absl::Milliseconds(1)));
  EXPECT_EQ(replica.state.TakeReport().load.prompt_steps.outputs, 5);
}

}  // namespace
}  // namespace skein::worker

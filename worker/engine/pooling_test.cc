// What ReplicaState makes of the rows that ranks pool.
#include <numeric>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/engine/replica_test_util.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

serving::Request Embedding(uint64_t id, std::vector<int32_t> prompt, serving::Pooling pooling) {
  serving::Request request = Request(id, std::move(prompt), /*max_tokens=*/1);
  request.eos_token_ids.clear();
  request.pooling = pooling;
  return request;
}

// A rank whose hidden state of every token is {1, the token}.
void Finish(Replica& replica, const StepOrder& order) {
  StepResult result{.step = order.step};
  for (const auto& batch : order.micro_batches) {
    for (const ChunkOrder& chunk : batch) {
      if (chunk.draws) result.sampled.push_back({.slot = chunk.slot, .tokens = {{.id = 50}}});
      if (chunk.pooled == 0) continue;
      kernels::PooledRows pooled{.slot = chunk.slot, .rows = chunk.pooled, .sum = {0, 0}};
      for (int64_t i = chunk.rows() - chunk.pooled; i < chunk.rows(); ++i) {
        pooled.sum[0] += 1;
        pooled.sum[1] += chunk.tokens[i];
      }
      result.pooled.push_back(pooled);
    }
  }
  SKEIN_ASSERT_OK(replica.state.Apply(result, absl::Milliseconds(1)));
}

std::vector<serving::AnswerOutput> RunToTheEnd(Replica& replica) {
  while (!replica.state.idle()) Finish(replica, replica.Next());
  return replica.state.TakeReport().answers;
}

// Steps have 8 rows.
TEST(PoolingTest, AMeanIsOverAllChunksAndTheLastIsTheLastTokens) {
  const std::vector<int32_t> prompt = {2, 4, 6, 8, 10, 12, 14, 16, 18, 20};
  Replica replica;
  replica.Add(Embedding(1, prompt, serving::Pooling::kMean));
  std::vector<serving::AnswerOutput> answers = RunToTheEnd(replica);
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_THAT(answers[0].embedding, ElementsAre(1, 11));
  EXPECT_EQ(answers[0].finish, serving::Finish::kMaxTokens);
  // Its pages are in the prefix cache now: the mean is over all rows all the same.
  replica.Add(Embedding(2, prompt, serving::Pooling::kMean));
  EXPECT_THAT(RunToTheEnd(replica)[0].embedding, ElementsAre(1, 11));
  replica.Add(Embedding(3, prompt, serving::Pooling::kLast));
  answers = RunToTheEnd(replica);
  EXPECT_THAT(answers[0].embedding, ElementsAre(1, 20));
  EXPECT_EQ(answers[0].cached_tokens, 8);
  replica.Add(Request(4, prompt, 1));
  EXPECT_THAT(RunToTheEnd(replica)[0].embedding, IsEmpty());
}

// One of higher priority takes its place between its chunks, while a step with one is under way.
TEST(PoolingTest, AMeanThatIsComputedAnewBeginsAnew) {
  ReplicaLimits limits = Limits();
  limits.pages = 5;
  Replica replica(limits);
  std::vector<int32_t> prompt(19);
  std::iota(prompt.begin(), prompt.end(), 1);
  replica.Add(Embedding(1, prompt, serving::Pooling::kMean));
  Finish(replica, replica.Next());
  const StepOrder before = replica.Next();
  serving::Request urgent = Request(2, std::vector<int32_t>(16, 7), 2);
  urgent.priority = 5;
  replica.Add(urgent);
  const StepOrder takes_its_place = replica.Next();
  Finish(replica, before);
  Finish(replica, takes_its_place);
  std::vector<serving::AnswerOutput> answers = RunToTheEnd(replica);
  EXPECT_EQ(replica.state.TakeReport().load.preemptions_recomputed, 1);
  ASSERT_THAT(answers, SizeIs(3));
  EXPECT_EQ(answers.back().request_id, serving::RequestId(1));
  EXPECT_THAT(answers.back().embedding, ElementsAre(1, 10));
}

TEST(PoolingTest, WhatCannotBePooledIsRefused) {
  Replica replica;
  serving::Request request = Embedding(1, {1}, serving::Pooling::kMean);
  request.max_tokens = 2;
  replica.Add(request);
  const StepReport report = replica.state.TakeReport();
  ASSERT_THAT(report.answers, SizeIs(1));
  EXPECT_THAT(report.answers[0].error, HasSubstr("one answer of one token"));

  replica.Add(Embedding(2, {1}, serving::Pooling::kMean));
  const StepOrder order = replica.Next();
  StepResult result{.step = order.step};
  result.sampled.push_back({.slot = order.micro_batches[0][0].slot, .tokens = {{.id = 50}}});
  result.pooled.push_back({.slot = 1, .rows = 1, .sum = {1}});
  EXPECT_THAT(replica.state.Apply(result, absl::Milliseconds(1)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("slot 1, which it did not work on")));
}

}  // namespace
}  // namespace skein::worker

#include "worker/engine/replica_state.h"

#include <string>
#include <utility>
#include <vector>

#include "base/test_util.h"
#include "worker/engine/replica_test_util.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(ReplicaStateTest, APromptIsStartedThenDecoded) {
  Replica replica;
  replica.Add(Request(7, {1, 2, 3}, 2));
  const StepOrder first = replica.Step(51);
  ASSERT_THAT(first.starts, SizeIs(1));
  EXPECT_THAT(first.starts[0].prompt, ElementsAre(1, 2, 3));
  ASSERT_THAT(first.updates, SizeIs(1));
  EXPECT_THAT(first.updates[0].pages, ElementsAre(0));  // lists no page that nothing is written to
  ASSERT_THAT(first.micro_batches, ElementsAre(SizeIs(1)));
  EXPECT_THAT(first.micro_batches[0][0].tokens, ElementsAre(1, 2, 3));
  EXPECT_TRUE(first.micro_batches[0][0].draws);

  const StepOrder second = replica.Step(52);
  EXPECT_THAT(second.starts, IsEmpty());
  EXPECT_THAT(second.updates, IsEmpty());
  EXPECT_EQ(second.step, first.step + 1);
  EXPECT_EQ(replica.Begins(second)[0][0], 3);
  EXPECT_THAT(second.micro_batches[0][0].tokens, ElementsAre(51));

  EXPECT_TRUE(replica.state.idle());
  const StepReport report = replica.state.TakeReport();
  ASSERT_THAT(report.answers, SizeIs(2));
  EXPECT_EQ(report.answers[0].request_id, serving::RequestId(7));
  EXPECT_EQ(report.answers[0].finish, serving::Finish::kNotFinished);
  EXPECT_EQ(report.answers[1].finish, serving::Finish::kMaxTokens);
  EXPECT_EQ(report.load.used_pages, 0);
  EXPECT_EQ(report.load.free_pages + report.load.cached_pages, 10);
}

TEST(ReplicaStateTest, TheNextStepIsPlannedBeforeTheTokenIsKnown) {
  Replica replica;
  replica.Add(Request(1, {1, 2, 3}, 3));
  const StepOrder first = replica.Next();
  const StepOrder second = replica.Next();
  EXPECT_THAT(second.micro_batches[0][0].tokens, ElementsAre(kernels::kNewestToken));
  EXPECT_EQ(replica.Begins(second)[0][0], 3);
  replica.Finish(first, 51);
  const StepOrder third = replica.Next();
  EXPECT_THAT(third.micro_batches[0][0].tokens, ElementsAre(kernels::kNewestToken));
  EXPECT_THAT(third.updates[0].first_page, 1);  // position 4 is on another page
  EXPECT_FALSE(replica.HasNext());              // three tokens are on their way
  replica.Finish(second, 52);
  replica.Finish(third, 53);
  std::vector<int32_t> answer;
  for (const serving::AnswerOutput& output : replica.state.TakeReport().answers) {
    for (const auto& token : output.tokens) answer.push_back(token.id);
  }
  EXPECT_THAT(answer, ElementsAre(51, 52, 53));
  EXPECT_TRUE(replica.state.idle());
}

TEST(ReplicaStateTest, ASurplusTokenIsDropped) {
  Replica replica;
  replica.Add(Request(1, {1}, 5));
  const StepOrder first = replica.Next();
  const StepOrder surplus = replica.Next();
  replica.Finish(first, kEosId);
  StepReport report = replica.state.TakeReport();
  ASSERT_THAT(report.answers, SizeIs(1));
  EXPECT_EQ(report.answers[0].finish, serving::Finish::kEos);
  EXPECT_EQ(report.answers[0].tokens[0].id, kEosId);
  EXPECT_EQ(report.load.used_pages, 0);
  replica.Add(Request(2, {1}, 5));
  // The slot is taken again while the step with the one before is under way.
  ASSERT_EQ(first.starts[0].slot, 0);
  EXPECT_THAT(replica.Next().starts, ElementsAre(Field(&kernels::SlotStart::slot, 0)));
  replica.Finish(surplus, 60);
  EXPECT_FALSE(replica.state.has_outputs());
}

TEST(ReplicaStateTest, ALongPromptIsComputedInChunksAndSampledOnce) {
  Replica replica;
  replica.Add(Request(1, std::vector<int32_t>(18, 5), 2));
  for (const auto& [count, draws] : {std::pair{8, false}, {8, false}, {2, true}}) {
    const StepOrder order = replica.Step();
    EXPECT_THAT(order.micro_batches[0][0].tokens, SizeIs(count));
    EXPECT_EQ(order.micro_batches[0][0].draws, draws);
  }
}

TEST(ReplicaStateTest, CancelFreesPagesAtOnce) {
  Replica replica;
  replica.Add(Request(1, {1, 2, 3, 4, 5}, 30));
  const int32_t first = replica.Step().starts[0].slot;
  EXPECT_EQ(replica.state.TakeReport().load.used_pages, 2);
  const StepOrder in_flight = replica.Next();
  replica.state.Cancel(serving::RequestId(1));
  const StepReport report = replica.state.TakeReport();
  EXPECT_EQ(report.load.used_pages, 0);
  ASSERT_THAT(report.answers, SizeIs(1));
  EXPECT_EQ(report.answers[0].finish, serving::Finish::kCancelled);
  replica.Finish(in_flight);
  EXPECT_FALSE(replica.state.has_outputs());
  replica.Add(Request(2, {1, 2}, 30));
  EXPECT_EQ(replica.Next().starts[0].slot, first);
  replica.state.Cancel(serving::RequestId(99));  // it ended meanwhile
  EXPECT_FALSE(replica.state.has_outputs());
  replica.state.CancelAll();
  EXPECT_TRUE(replica.state.idle());
  EXPECT_FALSE(replica.state.has_outputs());
}

TEST(ReplicaStateTest, AResumedAnswerGoesOnAtItsPosition) {
  Replica replica;
  serving::Request request = Request(1, {1, 2}, 4);
  request.answers = {{.index = 3, .output = {3, 4}}};
  replica.Add(request);
  const StepOrder order = replica.Step(5);
  EXPECT_EQ(order.starts[0].sampling.answer, 3u);
  EXPECT_THAT(order.starts[0].output, ElementsAre(3, 4));
  EXPECT_THAT(order.micro_batches[0][0].tokens, ElementsAre(1, 2, 3, 4));
  replica.Step(6);
  const StepReport report = replica.state.TakeReport();
  EXPECT_EQ(report.answers.back().answer, 3);
  EXPECT_EQ(report.answers.back().finish, serving::Finish::kMaxTokens);
}

TEST(ReplicaStateTest, APrefixThatIsThereIsNotComputedAgain) {
  Replica replica;
  replica.Add(Request(1, {1, 2, 3, 4, 5, 6, 7, 8}, 1));
  replica.Step();
  const StepReport first = replica.state.TakeReport();
  EXPECT_EQ(first.load.cached_pages, 2);
  EXPECT_EQ(first.answers.at(0).cached_tokens, 0);
  // The whole prompt is cached, but its last token must be computed to go on.
  replica.Add(Request(2, {1, 2, 3, 4, 5, 6, 7, 8}, 1));
  const StepOrder whole = replica.Step();
  EXPECT_THAT(whole.micro_batches[0][0].tokens, ElementsAre(5, 6, 7, 8));
  replica.Add(Request(3, {1, 2, 3, 4, 5, 6, 7, 8, 9}, 1));
  const StepOrder longer = replica.Step();
  EXPECT_THAT(longer.micro_batches[0][0].tokens, ElementsAre(9));
  EXPECT_EQ(replica.Begins(longer)[0][0], 8);
  EXPECT_THAT(longer.updates[0].pages, SizeIs(3));
  const StepReport report = replica.state.TakeReport();
  EXPECT_EQ(report.load.prompt_tokens, 25);
  EXPECT_EQ(report.load.cached_tokens, 12);
  ASSERT_THAT(report.answers, SizeIs(2));
  EXPECT_EQ(report.answers[0].cached_tokens, 4);
  EXPECT_EQ(report.answers[1].cached_tokens, 8);
}

TEST(ReplicaStateTest, WhatWasCachedIsToldWithTheFirstToken) {
  Replica replica;
  replica.Add(Request(1, {1, 2, 3, 4, 5}, 1));
  replica.Step();
  replica.state.TakeReport();
  replica.Add(Request(2, {1, 2, 3, 4, 6}, 3));
  std::vector<int64_t> cached;
  while (!replica.state.idle()) {
    replica.Step();
    for (const serving::AnswerOutput& output : replica.state.TakeReport().answers) {
      cached.push_back(output.cached_tokens);
    }
  }
  EXPECT_THAT(cached, ElementsAre(4, 0, 0));
}

TEST(ReplicaStateTest, WhoWaitsForAnothersPromptDoesNotRun) {
  Replica replica;
  serving::Request request = Request(1, {1, 2, 3, 4, 5, 6}, 4);
  request.answers = {{.index = 0}, {.index = 1}};
  replica.Add(request);
  serving::ReplicaLoad load = replica.state.TakeReport().load;
  EXPECT_EQ(load.running, 0);
  EXPECT_EQ(load.waiting, 2);
  replica.Step();
  load = replica.state.TakeReport().load;
  EXPECT_EQ(load.running, 2);
  EXPECT_EQ(load.waiting, 0);
}

TEST(ReplicaStateTest, SamplesShareThePromptUntilTheyWrite) {
  Replica replica;
  serving::Request request = Request(1, {1, 2, 3, 4, 5, 6}, 4);
  request.answers = {{.index = 0}, {.index = 1}};
  replica.Add(request);
  const StepOrder first = replica.Step();
  ASSERT_THAT(first.starts, SizeIs(2));
  EXPECT_THAT(first.starts[1].prompt, IsEmpty());  // it goes to the ranks once, too
  EXPECT_EQ(first.starts[1].prompt_of, first.starts[0].slot);
  EXPECT_NE(first.starts[1].slot, first.starts[0].slot);
  EXPECT_THAT(first.micro_batches[0], SizeIs(1));  // the prompt is computed once
  serving::ReplicaLoad load = replica.state.TakeReport().load;
  EXPECT_EQ(load.used_pages, 2);
  EXPECT_EQ(load.shared_pages, 2);
  EXPECT_EQ(load.running, 2);

  const StepOrder second = replica.Step();
  // One of the two copies the page that is partly filled; the other one keeps it.
  EXPECT_THAT(second.copies,
              ElementsAre(kernels::PageCopy{kernels::PageCopy::Kind::kWithin, 1, 2}));
  ASSERT_THAT(second.micro_batches[0], SizeIs(2));
  load = replica.state.TakeReport().load;
  EXPECT_EQ(load.used_pages, 3);
  EXPECT_EQ(load.shared_pages, 1);
}

TEST(ReplicaStateTest, OneAnswerIsCancelledAndTheOthersGoOn) {
  Replica replica;
  serving::Request request = Request(1, {1, 2, 3, 4, 5, 6}, 3);
  request.answers = {{.index = 0}, {.index = 1}};
  replica.Add(request);
  for (const int32_t answer : {0, 1, 2})
    replica.state.Cancel(serving::RequestId(1), answer);  // too early: the answer is unknown
  EXPECT_FALSE(replica.state.has_outputs());
  replica.Step();
  replica.Step();
  replica.state.TakeReport();
  replica.state.Cancel(serving::RequestId(1), 0);
  replica.state.Cancel(serving::RequestId(1), 0);
  const StepReport report = replica.state.TakeReport();
  ASSERT_THAT(report.answers, SizeIs(1));
  EXPECT_EQ(report.answers[0].answer, 0);
  EXPECT_EQ(report.answers[0].finish, serving::Finish::kCancelled);
  EXPECT_EQ(report.load.running, 1);
  EXPECT_EQ(report.load.used_pages, 2);
  while (!replica.state.idle()) replica.Step();
  const serving::AnswerOutput last = replica.state.TakeReport().answers.back();
  EXPECT_EQ(last.answer, 1);
  EXPECT_EQ(last.finish, serving::Finish::kMaxTokens);
  EXPECT_EQ(replica.state.TakeReport().load.used_pages, 0);
}

// What the next row sees is held, and nothing before it, whatever rows a step has.
TEST(ReplicaStateTest, PagesBehindAWindowAreGivenBackAsSoonAsNoRowSeesThem) {
  constexpr int64_t kWindow = 6, kPageSize = 4;
  ReplicaLimits limits = Limits();
  limits.scheduler.window = kWindow;
  limits.scheduler.max_num_batched_tokens = 5;
  limits.pages = 4;  // of 4 tokens; the sequence has 36
  Replica replica(limits);
  replica.Add(Request(1, std::vector<int32_t>(17, 3), 19));
  int64_t computed = 0;
  while (true) {
    const StepOrder order = replica.Next();
    computed += order.micro_batches[0][0].rows();
    const int64_t first = std::max<int64_t>(computed - (kWindow - 1), 0) / kPageSize;
    const int64_t end = (computed + kPageSize - 1) / kPageSize;
    ASSERT_EQ(replica.state.TakeReport().load.used_pages, end - first) << computed;
    replica.Finish(order);
    if (replica.state.idle()) break;
  }
  EXPECT_EQ(computed, 35);  // the last token is not computed
  EXPECT_EQ(replica.state.TakeReport().load.used_pages, 0);

  // A window and a step of 5 rows need 4 pages at the most.
  limits.pages = 3;
  Replica small(limits);
  small.Add(Request(1, std::vector<int32_t>(17, 3), 19));
  EXPECT_THAT(small.state.TakeReport().answers.at(0).error,
              HasSubstr("the KV cache has 3 pages of 4 tokens, and the request of 36 tokens may "
                        "need 4"));
}

// A copy of a page that the prefix cache keeps needs one more, which a pool of just so many pages
// as a sequence holds has not.
TEST(ReplicaStateTest, AnswersBehindAWindowNeedAPageToCopyTo) {
  ReplicaLimits limits = Limits();
  limits.scheduler.window = 6;
  limits.scheduler.max_num_batched_tokens = 4;
  limits.scheduler.max_micro_batch_rows = 4;
  for (const int64_t pages : {3, 4}) {
    SCOPED_TRACE(pages);
    limits.pages = pages;  // 5 positions and 4 rows touch 3
    Replica replica(limits);
    serving::Request request = Request(1, std::vector<int32_t>(16, 3), 3);
    request.answers = {{.index = 0}, {.index = 1}};
    replica.Add(request);
    const StepReport refused = replica.state.TakeReport();
    EXPECT_EQ(!refused.answers.empty(), pages == 3);
    for (int step = 0; step < 40 && !replica.state.idle(); ++step) replica.Step();
    EXPECT_TRUE(replica.state.idle());
    EXPECT_EQ(replica.state.TakeReport().load.used_pages, 0);
  }
}

TEST(ReplicaStateTest, RequestsThatCannotRunFailByName) {
  struct Case {
    serving::Request request;
    std::string error;
  };
  serving::Request done = Request(5, {1}, 1);
  done.answers = {{.output = {2}}};
  serving::Request many = Request(6, {1}, 5);
  many.answers.resize(3);
  for (const Case& c :
       {Case{Request(1, {}, 5), "no tokens"}, Case{Request(2, {1, 100}, 5), "token id 100"},
        Case{Request(3, {1, -1}, 5), "token id -1"},
        Case{Request(4, {1}, 40), "exceed the context of 40"}, Case{done, "given already"},
        Case{many, "3 answers: not in [1, 2]"}}) {
    Replica replica;
    replica.Add(c.request);
    EXPECT_TRUE(replica.state.idle());
    const StepReport report = replica.state.TakeReport();
    ASSERT_THAT(report.answers, SizeIs(1));
    EXPECT_EQ(report.answers[0].finish, serving::Finish::kFailed);
    EXPECT_THAT(report.answers[0].error, HasSubstr(c.error));
  }
}

TEST(ReplicaStateTest, OneSequencesFailureLeavesTheOthers) {
  Replica replica;
  replica.Add(Request(1, {1}, 5));
  replica.Add(Request(2, {1}, 5));
  const StepOrder order = replica.Next();
  SKEIN_ASSERT_OK(replica.state.Apply(
      {.step = order.step,
       .sampled = {{.slot = 0, .error = "a logit is NaN"}, {.slot = 1, .tokens = {{.id = 3}}}}},
      absl::Milliseconds(1)));
  const StepReport report = replica.state.TakeReport();
  EXPECT_EQ(report.answers[0].finish, serving::Finish::kFailed);
  EXPECT_EQ(report.answers[0].error, "a logit is NaN");
  EXPECT_EQ(report.answers[1].finish, serving::Finish::kNotFinished);
  EXPECT_EQ(report.load.running, 1);
}

TEST(ReplicaStateTest, APromptWhoseLogprobsCannotBeGivenFailsAlone) {
  ReplicaLimits limits = Limits();
  limits.max_num_seqs = 4;
  limits.scheduler.logit_rows = 3;
  Replica replica(limits);
  serving::Request asked = Request(1, {1, 2, 3, 4, 5, 6}, 5);
  asked.prompt_logprobs = 0;
  asked.answers = {{.index = 0}, {.index = 1}};
  replica.Add(asked);
  replica.Add(Request(2, {7, 8}, 2));
  const StepOrder order = replica.Next();
  // It takes the rows that may have logits, and leaves the others to the next prompt.
  ASSERT_THAT(order.micro_batches, ElementsAre(SizeIs(2)));
  EXPECT_THAT(order.micro_batches[0][0].tokens, ElementsAre(1, 2, 3));
  EXPECT_EQ(order.micro_batches[0][0].prompt_logprobs, 0);
  EXPECT_EQ(order.micro_batches[0][1].prompt_logprobs, -1);
  SKEIN_ASSERT_OK(replica.state.Apply(
      {.step = order.step,
       .sampled = {{.slot = order.micro_batches[0][1].slot, .tokens = {{.id = 50}}}},
       .prompt_logprobs = {{.slot = order.micro_batches[0][0].slot, .error = "a logit is NaN"}}},
      absl::Milliseconds(1)));
  const StepReport report = replica.state.TakeReport();
  ASSERT_THAT(report.answers, SizeIs(2));
  EXPECT_EQ(report.answers[0].request_id, serving::RequestId(1));
  EXPECT_EQ(report.answers[0].finish, serving::Finish::kFailed);
  EXPECT_EQ(report.answers[0].error, "a logit is NaN");
  EXPECT_EQ(report.answers[1].request_id, serving::RequestId(2));
  EXPECT_EQ(report.load.running + report.load.waiting, 1);  // both answers are gone
  while (!replica.state.idle()) replica.Step();
  EXPECT_EQ(replica.state.TakeReport().answers.back().finish, serving::Finish::kMaxTokens);
}

TEST(ReplicaStateTest, ResultsThatDoNotMatchTheOrderAreErrors) {
  Replica replica;
  replica.Add(Request(1, std::vector<int32_t>(10, 5), 2));
  const StepOrder order = replica.Next();  // 8 of 10 tokens: draws nothing
  EXPECT_THAT(replica.state.Apply({.step = order.step + 1}, absl::Milliseconds(1)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("out of turn")));
  EXPECT_THAT(
      replica.state.Apply({.step = order.step, .sampled = {{.slot = 0, .tokens = {{.id = 3}}}}},
                          absl::Milliseconds(1)),
      StatusIs(absl::StatusCode::kInternal, HasSubstr("other slots")));
}

TEST(ReplicaStateTest, AResultOfAnotherSlotOrWithoutATokenIsAnError) {
  for (const kernels::SampledTokens& row :
       {kernels::SampledTokens{.slot = 1, .tokens = {{.id = 3}}}, kernels::SampledTokens{}}) {
    Replica replica;
    replica.Add(Request(1, {5}, 2));
    const StepOrder order = replica.Next();
    EXPECT_THAT(replica.state.Apply({.step = order.step, .sampled = {row}}, absl::Milliseconds(1)),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("other slots")));
  }
  Replica replica;
  replica.Add(Request(1, {5}, 2));
  const StepOrder order = replica.Next();
  EXPECT_THAT(replica.state.Apply({.step = order.step,
                                   .sampled = {{.slot = 0, .tokens = {{.id = 3}}}},
                                   .prompt_logprobs = {{.slot = 1, .tokens = {{.id = 3}}}}},
                                  absl::Milliseconds(1)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("the prompt of slot 1")));
}

// Several positions may be checked at once; what stands behind an end of text is dropped.
TEST(ReplicaStateTest, AStepMayGiveSeveralTokens) {
  Replica replica;
  replica.Add(Request(1, {5}, 9));
  const StepOrder order = replica.Next();
  SKEIN_ASSERT_OK(replica.state.Apply(
      {.step = order.step,
       .sampled = {{.slot = 0, .tokens = {{.id = 3}, {.id = kEosId}, {.id = 4}}}}},
      absl::Milliseconds(1)));
  const StepReport report = replica.state.TakeReport();
  ASSERT_THAT(report.answers, SizeIs(1));
  ASSERT_THAT(report.answers[0].tokens, SizeIs(2));
  EXPECT_EQ(report.answers[0].tokens[1].id, kEosId);
  EXPECT_EQ(report.answers[0].finish, serving::Finish::kEos);
  EXPECT_TRUE(replica.state.idle());
}

}  // namespace
}  // namespace skein::worker

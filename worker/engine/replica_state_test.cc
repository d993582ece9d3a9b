#include "worker/engine/replica_state.h"

#include <string>

#include "base/test_util.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int32_t kEosId = 9;

ReplicaLimits Limits() {
  return {.scheduler = {.max_sequences = 2,
                        .micro_batches = 1,
                        .max_micro_batch_rows = 8,
                        .page_size = 4},
          .pages = 10,
          .context_length = 40,
          .vocab_size = 100};
}

GenerationRequest Request(RequestId id, std::vector<int32_t> prompt, int64_t max_tokens) {
  return {
      .id = id, .prompt = std::move(prompt), .max_tokens = max_tokens, .eos_token_ids = {kEosId}};
}

SampledRow Row(RequestId id, int32_t token) { return {.id = id, .token = {.id = token}}; }

TEST(ReplicaStateTest, APromptIsStartedThenDecoded) {
  ReplicaState state(Limits());
  state.Add(Request(7, {1, 2, 3}, 2));
  const StepOrder first = state.NextOrder();
  ASSERT_THAT(first.started, SizeIs(1));
  EXPECT_EQ(first.started[0].id, 7u);
  EXPECT_THAT(first.started[0].pages, ElementsAre(0, 1));  // 3 + 2 tokens in pages of 4
  ASSERT_THAT(first.micro_batches, ElementsAre(SizeIs(1)));
  EXPECT_THAT(first.micro_batches[0][0].tokens, ElementsAre(1, 2, 3));
  EXPECT_TRUE(first.micro_batches[0][0].sample);
  SKEIN_ASSERT_OK(state.Apply({Row(7, 50)}));

  const StepOrder second = state.NextOrder();
  EXPECT_THAT(second.started, IsEmpty());
  EXPECT_EQ(second.step, first.step + 1);
  EXPECT_EQ(second.micro_batches[0][0].begin, 3);
  EXPECT_THAT(second.micro_batches[0][0].tokens, ElementsAre(50));
  SKEIN_ASSERT_OK(state.Apply({Row(7, 51)}));

  EXPECT_TRUE(state.idle());
  const StepReport report = state.TakeReport();
  ASSERT_THAT(report.sequences, SizeIs(2));
  EXPECT_EQ(report.sequences[0].finish, Finish::kNotFinished);
  EXPECT_EQ(report.sequences[1].finish, Finish::kMaxTokens);
  EXPECT_EQ(report.load.free_pages, 10);
}

TEST(ReplicaStateTest, AnEndTokenEndsTheAnswerAndIsReported) {
  ReplicaState state(Limits());
  state.Add(Request(1, {1}, 5));
  state.NextOrder();
  SKEIN_ASSERT_OK(state.Apply({Row(1, kEosId)}));
  const StepReport report = state.TakeReport();
  ASSERT_THAT(report.sequences, SizeIs(1));
  EXPECT_EQ(report.sequences[0].finish, Finish::kEos);
  EXPECT_EQ(report.sequences[0].tokens[0].id, kEosId);
  state.Add(Request(2, {1}, 5));
  EXPECT_THAT(state.NextOrder().ended, ElementsAre(1));
}

TEST(ReplicaStateTest, ALongPromptIsComputedInChunksAndSampledOnce) {
  ReplicaState state(Limits());
  state.Add(Request(1, std::vector<int32_t>(18, 5), 2));
  for (const auto& [count, sample] : {std::pair{8, false}, {8, false}, {2, true}}) {
    const StepOrder order = state.NextOrder();
    EXPECT_THAT(order.micro_batches[0][0].tokens, SizeIs(count));
    EXPECT_EQ(order.micro_batches[0][0].sample, sample);
    SKEIN_ASSERT_OK(
        state.Apply(sample ? std::vector<SampledRow>{Row(1, 3)} : std::vector<SampledRow>{}));
  }
}

TEST(ReplicaStateTest, CancelFreesPagesAtOnce) {
  ReplicaState state(Limits());
  state.Add(Request(1, {1, 2}, 30));  // 8 pages
  state.Add(Request(2, {1, 2}, 30));  // must wait for them
  state.NextOrder();
  SKEIN_ASSERT_OK(state.Apply({Row(1, 3)}));
  EXPECT_EQ(state.TakeReport().load.free_pages, 2);
  state.Cancel(1);
  const StepReport report = state.TakeReport();
  EXPECT_EQ(report.load.free_pages, 10);
  ASSERT_THAT(report.sequences, SizeIs(1));
  EXPECT_EQ(report.sequences[0].finish, Finish::kCancelled);
  const StepOrder order = state.NextOrder();
  EXPECT_THAT(order.ended, ElementsAre(1));
  EXPECT_THAT(order.started, ElementsAre(Field(&SequenceStart::id, 2)));
  state.Cancel(99);  // ended meanwhile
  EXPECT_FALSE(state.has_outputs());
  state.CancelAll();
  EXPECT_TRUE(state.idle());
  EXPECT_FALSE(state.has_outputs());
}

TEST(ReplicaStateTest, AResumedAnswerGoesOnAtItsPosition) {
  ReplicaState state(Limits());
  GenerationRequest request = Request(1, {1, 2}, 4);
  request.output = {3, 4};
  state.Add(request);
  const StepOrder order = state.NextOrder();
  EXPECT_THAT(order.started[0].output, ElementsAre(3, 4));
  EXPECT_THAT(order.micro_batches[0][0].tokens, ElementsAre(1, 2, 3, 4));
  SKEIN_ASSERT_OK(state.Apply({Row(1, 5)}));
  state.NextOrder();
  SKEIN_ASSERT_OK(state.Apply({Row(1, 6)}));
  EXPECT_EQ(state.TakeReport().sequences.back().finish, Finish::kMaxTokens);
}

TEST(ReplicaStateTest, RequestsThatCannotRunFailByName) {
  struct Case {
    GenerationRequest request;
    std::string error;
  };
  GenerationRequest done = Request(5, {1}, 1);
  done.output = {2};
  for (const Case& c :
       {Case{Request(1, {}, 5), "no tokens"}, Case{Request(2, {1, 100}, 5), "token id 100"},
        Case{Request(3, {1, -1}, 5), "token id -1"},
        Case{Request(4, {1}, 40), "exceed the context of 40"}, Case{done, "given already"}}) {
    ReplicaState state(Limits());
    state.Add(c.request);
    EXPECT_TRUE(state.idle());
    const StepReport report = state.TakeReport();
    ASSERT_THAT(report.sequences, SizeIs(1));
    EXPECT_EQ(report.sequences[0].finish, Finish::kFailed);
    EXPECT_THAT(report.sequences[0].error, HasSubstr(c.error));
  }
}

TEST(ReplicaStateTest, OneSequencesFailureLeavesTheOthers) {
  ReplicaState state(Limits());
  state.Add(Request(1, {1}, 5));
  state.Add(Request(2, {1}, 5));
  state.NextOrder();
  SKEIN_ASSERT_OK(state.Apply({{.id = 1, .error = "a logit is NaN"}, Row(2, 3)}));
  const StepReport report = state.TakeReport();
  EXPECT_EQ(report.sequences[0].finish, Finish::kFailed);
  EXPECT_EQ(report.sequences[0].error, "a logit is NaN");
  EXPECT_EQ(report.sequences[1].finish, Finish::kNotFinished);
  EXPECT_EQ(report.load.running, 1);
}

TEST(ReplicaStateTest, TokensNobodyAskedForAreAnError) {
  ReplicaState state(Limits());
  state.Add(Request(1, std::vector<int32_t>(10, 5), 2));
  state.NextOrder();  // 8 of 10 tokens: samples nothing
  EXPECT_THAT(state.Apply({Row(1, 3)}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("request 1")));
  EXPECT_THAT(state.Apply({Row(2, 3)}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("request 2")));
}

TEST(StepOrderTest, MessagesRoundTripAndTruncationIsNoticed) {
  StepOrder order{.step = 12, .stop = true, .ended = {4, 5}};
  order.started.push_back({.id = 8,
                           .pages = {1, 2},
                           .prompt = {3},
                           .output = {4, 5},
                           .sampling = {.repetition_penalty = 1.5f, .top_k = 7, .seed = 99}});
  order.micro_batches = {{{.id = 8, .begin = 6, .tokens = {7, 8}, .sample = true}}, {}};
  const std::string bytes = Encode(order);
  SKEIN_ASSERT_OK_AND_ASSIGN(StepOrder back, DecodeStepOrder(bytes));
  EXPECT_EQ(back.step, 12);
  EXPECT_TRUE(back.stop);
  EXPECT_THAT(back.ended, ElementsAre(4, 5));
  EXPECT_THAT(back.started[0].output, ElementsAre(4, 5));
  EXPECT_EQ(back.started[0].sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(back.started[0].sampling.seed, 99u);
  EXPECT_THAT(back.micro_batches, ElementsAre(SizeIs(1), IsEmpty()));
  EXPECT_THAT(back.micro_batches[0][0].tokens, ElementsAre(7, 8));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeStepOrder(bytes.substr(0, size)).ok()) << size;
  }

  StepResult result{.step = 3, .status = absl::AbortedError("why")};
  result.sampled.push_back(
      {.id = 2, .token = {.id = 5, .logprob = -1.5f, .top_logprobs = {{5, -1.5f}}}});
  SKEIN_ASSERT_OK_AND_ASSIGN(StepResult result_back, DecodeStepResult(Encode(result)));
  EXPECT_THAT(result_back.status, StatusIs(absl::StatusCode::kAborted, "why"));
  EXPECT_EQ(result_back.sampled[0].token.top_logprobs[0].logprob, -1.5f);
}

}  // namespace
}  // namespace skein::worker

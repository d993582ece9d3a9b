#include "proto/convert/serving.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::convert {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace wire = ::skein::cluster::v1;

using serving::RequestId;

const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);

serving::Request PlainRequest() {
  serving::Request request{.id = RequestId(uint64_t{1} << 63),
                           .prompt = {7, 8, 9},
                           .answers = {{.index = 1, .output = {5, 6}, .mu = 0}, {.index = 15}},
                           .max_tokens = 40,
                           .eos_token_ids = {2, 12},
                           .priority = -3,
                           .waited = absl::Seconds(7.5),
                           .prompt_logprobs = 4};
  serving::SamplingParams& sampling = request.sampling;
  sampling.repetition_penalty = 1.5f;
  sampling.presence_penalty = 2.5f;
  sampling.frequency_penalty = 3.5f;
  sampling.temperature = 4.5f;
  sampling.top_k = 5;
  sampling.top_p = 0.625f;
  sampling.min_p = 0.125f;
  sampling.seed = 8;
  sampling.logprobs = 9;
  sampling.logit_bias = {{10, -10.5f}, {11, 1.5f}};
  sampling.min_tokens = 11;
  sampling.stop_ids = {2, 12};
  sampling.typical_p = 0.25f;
  sampling.mirostat_tau = 14.5f;
  sampling.mirostat_eta = 0.375f;
  sampling.dry_multiplier = 16.5f;
  sampling.dry_base = 17.5f;
  sampling.dry_allowed_length = 18;
  sampling.dry_last_n = -1;
  sampling.dry_breakers = {{20}, {21, 22}};
  return request;
}

// By the names of the wire, not of the codec.
wire::Request WireRequest() {
  wire::Request request;
  request.set_request_id(uint64_t{1} << 63);
  for (const uint32_t id : {7, 8, 9}) request.add_prompt(id);
  request.set_max_tokens(40);
  for (const uint32_t id : {2, 12}) request.add_eos_token_ids(id);
  request.set_priority(-3);
  request.set_waited_seconds(7.5);
  request.set_prompt_logprobs(4);
  wire::AnswerStart& first = *request.add_answers();
  first.set_index(1);
  first.add_output(5);
  first.add_output(6);
  first.set_mu(0);
  request.add_answers()->set_index(15);
  v1::Sampling& sampling = *request.mutable_sampling();
  sampling.set_repetition_penalty(1.5f);
  sampling.set_presence_penalty(2.5f);
  sampling.set_frequency_penalty(3.5f);
  sampling.set_temperature(4.5f);
  sampling.set_top_k(5);
  sampling.set_top_p(0.625f);
  sampling.set_min_p(0.125f);
  sampling.set_seed(8);
  sampling.set_logprobs(9);
  for (const auto& [id, bias] : {std::pair{10, -10.5f}, {11, 1.5f}}) {
    v1::TokenBias& to = *sampling.add_logit_bias();
    to.set_id(id);
    to.set_bias(bias);
  }
  sampling.set_min_tokens(11);
  sampling.set_typical_p(0.25f);
  sampling.set_mirostat_tau(14.5f);
  sampling.set_mirostat_eta(0.375f);
  sampling.set_dry_multiplier(16.5f);
  sampling.set_dry_base(17.5f);
  sampling.set_dry_allowed_length(18);
  sampling.set_dry_last_n(-1);
  request.add_dry_breakers()->add_ids(20);
  request.add_dry_breakers()->add_ids(21);
  request.mutable_dry_breakers(1)->add_ids(22);
  return request;
}

TEST(ServingTest, ARequestIsWrittenFieldByField) {
  wire::Request got;
  ToProto(PlainRequest(), kNow, got);
  EXPECT_EQ(got.DebugString(), WireRequest().DebugString());
}

TEST(ServingTest, ARequestIsReadFieldByField) {
  const serving::Request got = FromProto(WireRequest(), kNow);
  const serving::Request want = PlainRequest();
  EXPECT_EQ(got.id, want.id);
  EXPECT_EQ(got.prompt, want.prompt);
  EXPECT_EQ(got.max_tokens, want.max_tokens);
  EXPECT_EQ(got.eos_token_ids, want.eos_token_ids);
  EXPECT_EQ(got.priority, want.priority);
  EXPECT_EQ(got.waited, want.waited);
  EXPECT_EQ(got.prompt_logprobs, want.prompt_logprobs);
  EXPECT_EQ(got.deadline, absl::InfiniteFuture());
  ASSERT_THAT(got.answers, SizeIs(2));
  EXPECT_EQ(got.answers[0].index, 1);
  EXPECT_THAT(got.answers[0].output, ElementsAre(5, 6));
  EXPECT_EQ(got.answers[0].mu, 0.0f);
  EXPECT_EQ(got.answers[1].index, 15);
  EXPECT_THAT(got.answers[1].output, IsEmpty());
  EXPECT_FALSE(got.answers[1].mu.has_value());
  EXPECT_TRUE(got.sampling == want.sampling);
}

TEST(ServingTest, ADeadlineIsByTheReadersClock) {
  serving::Request request = PlainRequest();
  request.deadline = kNow + absl::Seconds(100);
  wire::Request wire;
  ToProto(request, kNow, wire);
  const absl::Time other_clock = kNow + absl::Hours(24);
  EXPECT_EQ(FromProto(wire, other_clock).deadline, other_clock + absl::Seconds(100));
  // One that has passed is still a deadline.
  ToProto(request, kNow + absl::Seconds(200), wire);
  EXPECT_LT(FromProto(wire, other_clock).deadline, other_clock + absl::Seconds(1));
}

TEST(ServingTest, NobodyIsYoungerThanNew) {
  wire::Request request = WireRequest();
  request.set_waited_seconds(-1);
  EXPECT_EQ(FromProto(request, kNow).waited, absl::ZeroDuration());
}

TEST(ServingTest, ARequestThatIsCancelledBeforeItLeftIsDropped) {
  wire::RequestUpdates waiting;
  AppendToProto({.requests = {{.id = RequestId(1)}, {.id = RequestId(2)}}}, kNow, waiting);
  AppendToProto({.cancelled = {RequestId(1), RequestId(3)},
                 .cancelled_answers = {{.request_id = RequestId(2), .answer = 4}}},
                kNow, waiting);
  const serving::RequestUpdates got = FromProto(waiting, kNow);
  ASSERT_THAT(got.requests, SizeIs(1));
  EXPECT_EQ(got.requests[0].id, RequestId(2));
  EXPECT_THAT(got.cancelled, ElementsAre(RequestId(3)));
  EXPECT_THAT(got.cancelled_answers,
              ElementsAre(serving::CancelledAnswer{.request_id = RequestId(2), .answer = 4}));
}

TEST(ServingTest, AnOutputKeepsItsFields) {
  wire::StepOutput wire;
  wire.mutable_load()->set_steps(3);
  wire.mutable_load()->set_host_seconds(250e-6);
  wire::AnswerOutput& row = *wire.add_answers();
  row.set_request_id(5);
  row.set_answer(2);
  row.set_finish(wire::AnswerOutput::MAX_TOKENS);
  row.set_error("a logit is NaN");
  row.set_cached_tokens(48);
  wire::Token& token = *row.add_tokens();
  token.set_id(6);
  token.set_logprob(-0.5f);
  token.set_mu(9.5f);
  wire::TokenLogprob& top = *token.add_top_logprobs();
  top.set_id(7);
  top.set_logprob(-0.25f);
  wire::Token& prompt = *row.add_prompt_logprobs();
  prompt.set_id(8);
  prompt.set_logprob(-1.5f);
  wire::TokenLogprob& prompt_top = *prompt.add_top_logprobs();
  prompt_top.set_id(9);
  prompt_top.set_logprob(-0.75f);

  const serving::StepOutput got = FromProto(wire);
  EXPECT_EQ(got.load.steps, 3);
  EXPECT_EQ(got.load.host_time, absl::Microseconds(250));
  ASSERT_THAT(got.answers, SizeIs(1));
  const serving::AnswerOutput& answer = got.answers[0];
  EXPECT_EQ(answer.request_id, RequestId(5));
  EXPECT_EQ(answer.answer, 2);
  EXPECT_EQ(answer.finish, serving::Finish::kMaxTokens);
  EXPECT_EQ(answer.error, "a logit is NaN");
  EXPECT_EQ(answer.cached_tokens, 48);
  ASSERT_THAT(answer.tokens, SizeIs(1));
  EXPECT_EQ(answer.tokens[0].id, 6);
  EXPECT_EQ(answer.tokens[0].logprob, -0.5f);
  EXPECT_EQ(answer.tokens[0].mu, 9.5f);
  EXPECT_THAT(answer.tokens[0].top_logprobs, ElementsAre(serving::TokenLogprob{7, -0.25f}));
  ASSERT_THAT(answer.prompt_logprobs, SizeIs(1));
  EXPECT_EQ(answer.prompt_logprobs[0].id, 8);
  EXPECT_EQ(answer.prompt_logprobs[0].logprob, -1.5f);
  EXPECT_THAT(answer.prompt_logprobs[0].top_logprobs,
              ElementsAre(serving::TokenLogprob{9, -0.75f}));
  // And back.
  wire.mutable_load()->clear_host_seconds();
  serving::StepOutput copy = got;
  copy.load.host_time = absl::ZeroDuration();
  EXPECT_EQ(ToProto(copy).DebugString(), wire.DebugString());
}

TEST(ServingTest, EveryEndHasItsName) {
  using serving::Finish;
  for (const auto& [plain, named] :
       {std::pair{Finish::kNotFinished, wire::AnswerOutput::NOT_FINISHED},
        {Finish::kEos, wire::AnswerOutput::EOS},
        {Finish::kMaxTokens, wire::AnswerOutput::MAX_TOKENS},
        {Finish::kCancelled, wire::AnswerOutput::CANCELLED},
        {Finish::kFailed, wire::AnswerOutput::FAILED}}) {
    serving::StepOutput output;
    output.answers.push_back({.finish = plain});
    const wire::StepOutput sent = ToProto(output);
    EXPECT_EQ(sent.answers(0).finish(), named);
    EXPECT_EQ(FromProto(sent).answers[0].finish, plain);
  }
}

TEST(ServingTest, AStrangersErrorIsPrintable) {
  wire::StepOutput wire;
  wire.add_answers()->set_error("bad\x1b[2J");
  EXPECT_EQ(FromProto(wire).answers[0].error.find('\x1b'), std::string::npos);
}

TEST(ServingTest, ALoadKeepsItsFields) {
  wire::ReplicaLoad wire;
  // Every field of a message has another number, as its type has it.
  const auto fill = [](google::protobuf::Message& message, int first) {
    const auto& reflection = *message.GetReflection();
    const auto* descriptor = message.GetDescriptor();
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const auto* field = descriptor->field(i);
      using F = google::protobuf::FieldDescriptor;
      if (field->cpp_type() == F::CPPTYPE_INT32) reflection.SetInt32(&message, field, first + i);
      if (field->cpp_type() == F::CPPTYPE_INT64) reflection.SetInt64(&message, field, first + i);
      if (field->cpp_type() == F::CPPTYPE_DOUBLE) reflection.SetDouble(&message, field, first + i);
    }
  };
  fill(wire, 1);
  fill(*wire.mutable_prompt_steps(), 100);
  const serving::ReplicaLoad got = FromProto(wire);
  EXPECT_EQ(got.running, wire.running());
  EXPECT_EQ(got.waiting, wire.waiting());
  EXPECT_EQ(got.total_pages, wire.total_pages());
  EXPECT_EQ(got.free_pages, wire.free_pages());
  EXPECT_EQ(got.used_pages, wire.used_pages());
  EXPECT_EQ(got.shared_pages, wire.shared_pages());
  EXPECT_EQ(got.cached_pages, wire.cached_pages());
  EXPECT_EQ(got.total_swap_pages, wire.total_swap_pages());
  EXPECT_EQ(got.free_swap_pages, wire.free_swap_pages());
  EXPECT_EQ(got.steps, wire.steps());
  EXPECT_EQ(got.prompt_tokens, wire.prompt_tokens());
  EXPECT_EQ(got.cached_tokens, wire.cached_tokens());
  EXPECT_EQ(got.preemptions_swapped, wire.preemptions_swapped());
  EXPECT_EQ(got.preemptions_recomputed, wire.preemptions_recomputed());
  EXPECT_EQ(got.decode_steps, wire.decode_steps());
  EXPECT_EQ(got.decode_rows, wire.decode_rows());
  EXPECT_EQ(got.decode_context, wire.decode_context());
  EXPECT_EQ(got.decode_time, absl::Seconds(wire.decode_seconds()));
  EXPECT_EQ(got.host_time, absl::Seconds(wire.host_seconds()));
  const wire::PromptSteps& prompts = wire.prompt_steps();
  EXPECT_EQ(got.prompt_steps.steps, prompts.steps());
  EXPECT_EQ(got.prompt_steps.behind_nothing, prompts.behind_nothing());
  EXPECT_EQ(got.prompt_steps.behind_decodes, prompts.behind_decodes());
  EXPECT_EQ(got.prompt_steps.prompts, prompts.prompts());
  EXPECT_EQ(got.prompt_steps.rows, prompts.rows());
  EXPECT_EQ(got.prompt_steps.context, prompts.context());
  EXPECT_EQ(got.prompt_steps.outputs, prompts.outputs());
  EXPECT_EQ(got.prompt_steps.decodes, prompts.decodes());
  EXPECT_EQ(got.prompt_steps.decode_context, prompts.decode_context());
  EXPECT_EQ(got.prompt_steps.time, absl::Seconds(prompts.seconds()));
  // With what was read field by field, writing is held, too.
  EXPECT_EQ(ToProto(got).DebugString(), wire.DebugString());
}

// The coordinator appends what comes: it reads a step's answers, and an answer's tokens, in order.
TEST(ServingTest, AStepKeepsItsOrder) {
  serving::StepOutput output;
  for (const uint64_t id : {7, 5, 7}) {  // twice one answer: two steps in one output
    serving::AnswerOutput& answer = output.answers.emplace_back();
    answer.request_id = RequestId(id);
    const auto first = static_cast<int32_t>(10 * output.answers.size());
    for (int32_t token = first; token < first + 3; ++token) {
      answer.tokens.push_back({.id = token, .top_logprobs = {{1, -0.5f}, {2, -1}, {3, -2}}});
      answer.prompt_logprobs.push_back({.id = token + 5});
    }
  }
  const wire::StepOutput sent = ToProto(output);
  std::vector<uint64_t> requests;
  std::vector<uint32_t> tokens, prompt_tokens, top;
  for (const wire::AnswerOutput& answer : sent.answers()) {
    requests.push_back(answer.request_id());
    for (const wire::Token& token : answer.tokens()) tokens.push_back(token.id());
    for (const wire::Token& token : answer.prompt_logprobs()) prompt_tokens.push_back(token.id());
    for (const wire::TokenLogprob& row : answer.tokens(0).top_logprobs()) top.push_back(row.id());
  }
  EXPECT_THAT(requests, ElementsAre(7, 5, 7));
  EXPECT_THAT(tokens, ElementsAre(10, 11, 12, 20, 21, 22, 30, 31, 32));
  EXPECT_THAT(prompt_tokens, ElementsAre(15, 16, 17, 25, 26, 27, 35, 36, 37));
  EXPECT_THAT(top, ElementsAre(1, 2, 3, 1, 2, 3, 1, 2, 3));
  EXPECT_EQ(ToProto(FromProto(sent)).DebugString(), sent.DebugString());
}

}  // namespace
}  // namespace skein::convert

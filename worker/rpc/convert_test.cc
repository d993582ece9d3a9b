#include "worker/rpc/convert.h"

#include <cstdint>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace pb = ::skein::cluster::v1;

pb::NewRequest Request() {
  pb::NewRequest request;
  request.set_request_id(uint64_t{1} << 63);
  for (const uint32_t id : {7, 8, 9}) request.add_prompt(id);
  request.set_max_tokens(40);
  request.add_eos_token_ids(2);
  request.set_priority(-3);
  request.set_prompt_logprobs(4);
  pb::SampleStart& first = *request.add_samples();
  first.set_index(1);
  first.add_output(5);
  first.add_output(6);
  first.set_mu(0);
  request.add_samples()->set_index(15);
  return request;
}

TEST(ConvertTest, ARequestKeepsItsFields) {
  const GenerationRequest got = FromProto(Request());
  EXPECT_EQ(got.id, uint64_t{1} << 63);
  EXPECT_THAT(got.prompt, ElementsAre(7, 8, 9));
  EXPECT_EQ(got.max_tokens, 40);
  EXPECT_THAT(got.eos_token_ids, ElementsAre(2));
  EXPECT_EQ(got.priority, -3);
  EXPECT_EQ(got.prompt_logprobs, 4);
  EXPECT_EQ(got.deadline, absl::InfiniteFuture());
  ASSERT_THAT(got.samples, SizeIs(2));
  EXPECT_EQ(got.samples[0].index, 1);
  EXPECT_THAT(got.samples[0].output, ElementsAre(5, 6));
  EXPECT_EQ(got.samples[0].mu, 0.0f);
  EXPECT_EQ(got.samples[1].index, 15);
  EXPECT_THAT(got.samples[1].output, IsEmpty());
  EXPECT_FALSE(got.samples[1].mu.has_value());
}

TEST(ConvertTest, ADeadlineIsByThisMachinesClock) {
  pb::NewRequest request = Request();
  request.set_deadline_seconds(100);
  const absl::Time before = absl::Now();
  const GenerationRequest got = FromProto(request);
  EXPECT_GE(got.deadline, before + absl::Seconds(100));
  EXPECT_LE(got.deadline, absl::Now() + absl::Seconds(100));
}

TEST(ConvertTest, WhatARequestHasWaitedTravelsWithIt) {
  pb::NewRequest request = Request();
  EXPECT_EQ(FromProto(request).waited, absl::ZeroDuration());
  request.set_waited_seconds(7.5);
  EXPECT_EQ(FromProto(request).waited, absl::Seconds(7.5));
  request.set_waited_seconds(-1);
  EXPECT_EQ(FromProto(request).waited, absl::ZeroDuration());
}

TEST(ConvertTest, SamplingKeepsItsFields) {
  pb::NewRequest request = Request();
  pb::Sampling& sampling = *request.mutable_sampling();
  sampling.set_repetition_penalty(1.5f);
  sampling.set_presence_penalty(2.5f);
  sampling.set_frequency_penalty(3.5f);
  sampling.set_temperature(4.5f);
  sampling.set_top_k(5);
  sampling.set_top_p(0.625f);
  sampling.set_min_p(0.125f);
  sampling.set_seed(8);
  sampling.set_logprobs(9);
  sampling.add_logit_bias()->set_id(10);
  sampling.mutable_logit_bias(0)->set_bias(-10.5f);
  sampling.set_min_tokens(11);
  sampling.add_stop_ids(12);
  sampling.add_stop_ids(13);
  sampling.set_typical_p(0.25f);
  sampling.set_mirostat_tau(14.5f);
  sampling.set_mirostat_eta(0.375f);
  sampling.set_dry_multiplier(16.5f);
  sampling.set_dry_base(17.5f);
  sampling.set_dry_allowed_length(18);
  sampling.set_dry_last_n(-1);
  sampling.add_dry_breakers()->add_ids(20);
  sampling.add_dry_breakers()->add_ids(21);
  sampling.mutable_dry_breakers(1)->add_ids(22);

  const kernels::SamplingParams got = FromProto(request).sampling;
  EXPECT_EQ(got.repetition_penalty, 1.5f);
  EXPECT_EQ(got.presence_penalty, 2.5f);
  EXPECT_EQ(got.frequency_penalty, 3.5f);
  EXPECT_EQ(got.temperature, 4.5f);
  EXPECT_EQ(got.top_k, 5);
  EXPECT_EQ(got.top_p, 0.625f);
  EXPECT_EQ(got.min_p, 0.125f);
  EXPECT_EQ(got.seed, 8u);
  EXPECT_EQ(got.logprobs, 9);
  ASSERT_THAT(got.logit_bias, SizeIs(1));
  EXPECT_EQ(got.logit_bias[0].id, 10);
  EXPECT_EQ(got.logit_bias[0].bias, -10.5f);
  EXPECT_EQ(got.min_tokens, 11);
  EXPECT_THAT(got.stop_ids, ElementsAre(12, 13));
  EXPECT_EQ(got.typical_p, 0.25f);
  EXPECT_EQ(got.mirostat_tau, 14.5f);
  EXPECT_EQ(got.mirostat_eta, 0.375f);
  EXPECT_EQ(got.dry.multiplier, 16.5f);
  EXPECT_EQ(got.dry.base, 17.5f);
  EXPECT_EQ(got.dry.allowed_length, 18);
  EXPECT_EQ(got.dry.last_n, -1);
  EXPECT_THAT(got.dry.breakers, ElementsAre(ElementsAre(20), ElementsAre(21, 22)));
}

TEST(ConvertTest, AStepKeepsItsFields) {
  StepReport report;
  report.load.steps = 3;
  report.load.host_time = absl::Microseconds(250);
  SequenceOutput& sequence = report.sequences.emplace_back();
  sequence.id = 5;
  sequence.sample = 2;
  sequence.finish = Finish::kMaxTokens;
  sequence.tokens = {{.id = 6, .logprob = -0.5f, .top_logprobs = {{7, -0.25f}}, .mu = 9.5f}};
  sequence.prompt_logprobs = {{.id = 8, .logprob = -1.5f, .top_logprobs = {{9, -0.75f}}}};
  const pb::StepOutput got = ToProto(report);
  EXPECT_EQ(got.load().steps(), 3);
  EXPECT_DOUBLE_EQ(got.load().host_seconds(), 250e-6);
  ASSERT_THAT(got.sequences(), SizeIs(1));
  const pb::SequenceOutput& row = got.sequences(0);
  EXPECT_EQ(row.request_id(), 5u);
  EXPECT_EQ(row.sample(), 2u);
  EXPECT_EQ(row.finish(), pb::SequenceOutput::MAX_TOKENS);
  ASSERT_THAT(row.tokens(), SizeIs(1));
  EXPECT_EQ(row.tokens(0).id(), 6u);
  EXPECT_EQ(row.tokens(0).logprob(), -0.5f);
  EXPECT_EQ(row.tokens(0).top(0).id(), 7u);
  EXPECT_EQ(row.tokens(0).mu(), 9.5f);
  ASSERT_THAT(row.prompt_logprobs(), SizeIs(1));
  EXPECT_EQ(row.prompt_logprobs(0).id(), 8u);
  EXPECT_EQ(row.prompt_logprobs(0).logprob(), -1.5f);
  EXPECT_EQ(row.prompt_logprobs(0).top(0).logprob(), -0.75f);
}

// The service appends what comes: it reads a step's sequences, and a sequence's tokens, in order.
TEST(ConvertTest, AStepKeepsItsOrder) {
  StepReport report;
  for (const RequestId id : {7, 5, 7}) {  // twice one sequence: two steps in one report
    SequenceOutput& sequence = report.sequences.emplace_back();
    sequence.id = id;
    const auto first = static_cast<int32_t>(10 * report.sequences.size());
    for (int32_t token = first; token < first + 3; ++token) {
      sequence.tokens.push_back({.id = token, .top_logprobs = {{1, -0.5f}, {2, -1}, {3, -2}}});
      sequence.prompt_logprobs.push_back({.id = token + 5});
    }
  }
  std::vector<uint64_t> requests;
  std::vector<uint32_t> tokens, prompt_tokens, top;
  const pb::StepOutput step = ToProto(report);
  for (const pb::SequenceOutput& sequence : step.sequences()) {
    requests.push_back(sequence.request_id());
    for (const pb::Token& token : sequence.tokens()) tokens.push_back(token.id());
    for (const pb::Token& token : sequence.prompt_logprobs()) prompt_tokens.push_back(token.id());
    for (const pb::TokenLogprob& row : sequence.tokens(0).top()) top.push_back(row.id());
  }
  EXPECT_THAT(requests, ElementsAre(7, 5, 7));
  EXPECT_THAT(tokens, ElementsAre(10, 11, 12, 20, 21, 22, 30, 31, 32));
  EXPECT_THAT(prompt_tokens, ElementsAre(15, 16, 17, 25, 26, 27, 35, 36, 37));
  EXPECT_THAT(top, ElementsAre(1, 2, 3, 1, 2, 3, 1, 2, 3));
}

TEST(ConvertTest, AHeartbeatKeepsItsFields) {
  comm::Progress progress = {.step = 41, .deadline = absl::Seconds(30), .entered = {{"tp", 7}}};
  EXPECT_FALSE(ToProto(progress).has_operation());
  progress.operation = {.group = "tp",
                        .call = {.operation = comm::Operation::kAllReduce, .number = 7},
                        .others = {3, 5},
                        .elapsed = absl::Seconds(12),
                        .still = absl::Milliseconds(2500)};
  const pb::Heartbeat got = ToProto(progress);
  EXPECT_EQ(got.step(), 41);
  EXPECT_EQ(got.entered().at("tp"), 7);
  EXPECT_EQ(got.operation().group(), "tp");
  EXPECT_EQ(got.operation().operation(), "all-reduce");
  EXPECT_EQ(got.operation().number(), 7);
  EXPECT_EQ(got.operation().peer(), -1);
  EXPECT_THAT(got.operation().others(), ElementsAre(3, 5));
  EXPECT_EQ(got.operation().seconds(), 12);
  EXPECT_EQ(got.operation().still_seconds(), 2.5);
  EXPECT_EQ(got.operation().deadline_seconds(), 30);
}

}  // namespace
}  // namespace skein::worker

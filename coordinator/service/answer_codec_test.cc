#include "coordinator/service/answer_codec.h"

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "serving/sampling_fields.h"

namespace skein::coordinator {
namespace {

using ::testing::ElementsAre;

template <typename T>
T Again(const T& event) {
  const auto decoded = DecodeEvent(EncodeEvent(3, event));
  EXPECT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->part, 3);
  return std::get<T>(decoded->event);
}

TEST(AnswerCodecTest, AcceptedFinishedAndErrors) {
  const Accepted accepted = Again(Accepted{.request_id = "req-1",
                                           .prompt_tokens = 7,
                                           .seed = std::numeric_limits<uint64_t>::max(),
                                           .max_tokens = 9,
                                           .n = 2});
  EXPECT_EQ(accepted.request_id, "req-1");
  EXPECT_EQ(accepted.prompt_tokens, 7);
  EXPECT_EQ(accepted.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(accepted.max_tokens, 9);
  EXPECT_EQ(accepted.n, 2);

  const Finished finished = Again(Finished{.answer = 1,
                                           .reason = Finished::Reason::kStop,
                                           .stop = "\xFF\0x",
                                           .usage = {.prompt_tokens = 1,
                                                     .completion_tokens = 2,
                                                     .cached_tokens = 3,
                                                     .queue_time = absl::Nanoseconds(4),
                                                     .first_token_time = absl::Seconds(5),
                                                     .total_time = absl::Hours(6)}});
  EXPECT_EQ(finished.answer, 1);
  EXPECT_EQ(finished.reason, Finished::Reason::kStop);
  EXPECT_EQ(finished.stop, "\xFF\0x");
  EXPECT_EQ(finished.usage.prompt_tokens, 1);
  EXPECT_EQ(finished.usage.completion_tokens, 2);
  EXPECT_EQ(finished.usage.cached_tokens, 3);
  EXPECT_EQ(finished.usage.queue_time, absl::Nanoseconds(4));
  EXPECT_EQ(finished.usage.first_token_time, absl::Seconds(5));
  EXPECT_EQ(finished.usage.total_time, absl::Hours(6));

  EXPECT_EQ(Again(absl::UnavailableError("gone")), absl::UnavailableError("gone"));
}

TEST(AnswerCodecTest, TokensToTheLastBit) {
  const Tokens plain =
      Again(Tokens{.answer = 2, .text = "é", .tokens = {{.id = 5}, {.id = 70000}}});
  EXPECT_EQ(plain.answer, 2);
  EXPECT_EQ(plain.text, "é");
  ASSERT_EQ(plain.tokens.size(), 2);
  EXPECT_EQ(plain.tokens[1].id, 70000);
  EXPECT_FALSE(plain.tokens[0].logprob.has_value());
  EXPECT_FALSE(plain.state.mu.has_value());

  const float odd = std::nextafter(-0.1f, -1.0f);
  const float none = -std::numeric_limits<float>::infinity();
  const Tokens full =
      Again(Tokens{.tokens = {{.id = 1, .logprob = odd, .top_logprobs = {{1, odd}, {2, none}}}},
                   .prompt_logprobs = {{.id = 8, .logprob = -1.5f}},
                   .state = {.mu = odd,
                             .cached_tokens = 4,
                             .queue_time = absl::Microseconds(5),
                             .first_token_time = absl::Seconds(6)}});
  EXPECT_EQ(full.tokens[0].logprob, odd);
  EXPECT_THAT(full.tokens[0].top_logprobs,
              ElementsAre(serving::TokenLogprob{1, odd}, serving::TokenLogprob{2, none}));
  ASSERT_EQ(full.prompt_logprobs.size(), 1);
  EXPECT_EQ(full.prompt_logprobs[0].logprob, -1.5f);
  EXPECT_EQ(full.state.mu, odd);
  EXPECT_EQ(full.state.cached_tokens, 4);
  EXPECT_EQ(full.state.queue_time, absl::Microseconds(5));
  EXPECT_EQ(full.state.first_token_time, absl::Seconds(6));
}

TEST(AnswerCodecTest, RequestsWithEverySamplingParameter) {
  ValidRequest valid;
  serving::Request& request = valid.request;
  request.prompt = {1, 2, 300};
  request.answers = {{.index = 0}, {.index = 1}};
  request.max_tokens = 11;
  request.eos_token_ids = {256, 3};
  request.priority = -4;
  request.deadline = absl::FromUnixNanos(1'234'567'890'123'456'789);
  request.prompt_logprobs = 5;
  float value = 0.3f;
  // Each its own.
  serving::SamplingFields::ForEach([&](const auto& field) {
    value += 1;
    auto& member = request.sampling.*field.member;
    member = static_cast<std::decay_t<decltype(member)>>(value);
  });
  request.sampling.seed = std::numeric_limits<uint64_t>::max() - 1;
  request.sampling.logit_bias = {{7, -0.1f}};
  request.sampling.stop_ids = {9};
  request.sampling.dry_breakers = {{1, 2}, {3}};
  valid.stops = {"\xC3", "end"};

  SKEIN_ASSERT_OK_AND_ASSIGN(const ValidRequest again, DecodeRequest(EncodeRequest(valid)));
  EXPECT_EQ(again.request.prompt, request.prompt);
  ASSERT_EQ(again.request.answers.size(), 2);
  EXPECT_EQ(again.request.answers[1].index, 1);
  EXPECT_EQ(again.request.max_tokens, 11);
  EXPECT_EQ(again.request.eos_token_ids, request.eos_token_ids);
  EXPECT_EQ(again.request.priority, -4);
  EXPECT_EQ(again.request.deadline, request.deadline);
  EXPECT_EQ(again.request.prompt_logprobs, 5);
  EXPECT_EQ(again.request.sampling, request.sampling);
  EXPECT_EQ(again.stops, valid.stops);

  SKEIN_ASSERT_OK_AND_ASSIGN(const ValidRequest endless, DecodeRequest(EncodeRequest({})));
  EXPECT_EQ(endless.request.deadline, absl::InfiniteFuture());
}

TEST(AnswerCodecTest, OtherBytesAreErrors) {
  const std::string event = EncodeEvent(0, Tokens{.text = "text", .tokens = {{.id = 1}}});
  for (size_t length = 0; length < event.size(); ++length) {
    EXPECT_THAT(DecodeEvent(event.substr(0, length)),
                StatusIs(absl::StatusCode::kDataLoss, ::testing::_));
  }
  EXPECT_THAT(DecodeRequest(event), StatusIs(absl::StatusCode::kDataLoss, ::testing::_));
}

}  // namespace
}  // namespace skein::coordinator

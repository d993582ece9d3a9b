#include "coordinator/service/generation.h"

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/test_util.h"
#include "coordinator/service/fake_tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

using Finish = SequenceOutput::Finish;
using Progress = Generation::Progress;

SequenceOutput Output(const std::string& text, Finish finish = Finish::kNotFinished) {
  SequenceOutput output{.request_id = 1, .finish = finish};
  for (const char byte : text) output.tokens.push_back({.id = static_cast<uint8_t>(byte)});
  return output;
}

class GenerationTest : public ::testing::Test {
 protected:
  std::shared_ptr<Generation> Make(std::vector<std::string> stops = {}, int32_t logprobs = -1) {
    ValidRequest valid;
    valid.request.prompt = {1, 2, 3};
    valid.request.max_tokens = 10;
    valid.request.sampling.seed = 5;
    valid.request.sampling.logprobs = logprobs;
    valid.stops = std::move(stops);
    return std::make_shared<Generation>(1, "req-1", valid, &model_, &clock_, [this] { ++ready_; });
  }

  // Takes the next event, which is a T.
  template <typename T>
  T Take(Generation& generation) {
    const std::optional<Event> event = generation.Next();
    EXPECT_TRUE(event.has_value() && std::holds_alternative<T>(*event));
    return event.has_value() && std::holds_alternative<T>(*event) ? std::get<T>(*event) : T{};
  }

  const ServedModel model_ = MakeFakeModel();
  SimulatedClock clock_;
  int ready_ = 0;
};

TEST_F(GenerationTest, EventsComeInOrderAndTokensPileUpInOne) {
  const auto generation = Make();
  const Accepted accepted = Take<Accepted>(*generation);
  EXPECT_EQ(accepted.request_id, "req-1");
  EXPECT_EQ(accepted.prompt_tokens, 3u);
  EXPECT_EQ(accepted.seed, 5u);
  EXPECT_EQ(accepted.max_tokens, 10u);
  EXPECT_FALSE(generation->Next().has_value());

  clock_.Advance(absl::Seconds(1));
  generation->OnDispatched();
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(generation->OnOutput(Output("ab")), Progress::kRunning);
  EXPECT_EQ(generation->OnOutput(Output("c")), Progress::kRunning);
  EXPECT_EQ(ready_, 2);
  const Tokens first = Take<Tokens>(*generation);
  EXPECT_EQ(first.text, "abc");
  EXPECT_THAT(first.tokens, SizeIs(3));
  EXPECT_FALSE(first.tokens[0].logprob.has_value());
  EXPECT_FALSE(generation->Next().has_value());

  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(generation->OnOutput(Output("d", Finish::kMaxTokens)), Progress::kFinished);
  EXPECT_EQ(Take<Tokens>(*generation).text, "d");
  const Finished finished = Take<Finished>(*generation);
  EXPECT_EQ(finished.reason, Finished::Reason::kMaxTokens);
  EXPECT_EQ(finished.usage.completion_tokens, 4u);
  EXPECT_DOUBLE_EQ(finished.usage.queue_seconds, 1);
  EXPECT_DOUBLE_EQ(finished.usage.first_token_seconds, 2);
  EXPECT_DOUBLE_EQ(finished.usage.total_seconds, 4);
  EXPECT_FALSE(generation->Next().has_value());
}

TEST_F(GenerationTest, AVeryLargeEventIsCutBetweenCharacters) {
  constexpr int kPieces = 3000;
  const std::string piece = "a" + std::string(85, '?') + "\xE2\x82\xAC";  // 89 bytes: odd cuts
  const ServedModel model = MakeFakeModel({piece, "\xE2\x82\xAC"}, 20'000);
  std::string whole;
  ValidRequest valid;
  valid.request.max_tokens = 19'000;
  Generation generation(1, "req-1", valid, &model, &clock_, [] {});
  SequenceOutput output{.request_id = 1};
  for (int i = 0; i < 3 * kPieces; ++i) {
    output.tokens.push_back({.id = FakeTokenizer::kFirstWord + (i % 3 == 0)});
    whole += i % 3 == 0 ? "\xE2\x82\xAC" : piece;
  }
  generation.OnOutput(output);
  Take<Accepted>(generation);
  std::string text;
  size_t tokens = 0;
  int events = 0;
  while (const std::optional<Event> event = generation.Next()) {
    const auto& part = std::get<Tokens>(*event);
    EXPECT_LE(part.text.size(), 512u << 10);
    EXPECT_LE(part.tokens.size(), 2048u);
    const uint8_t first = part.text.empty() ? 0 : static_cast<uint8_t>(part.text[0]);
    EXPECT_NE(first & 0xC0, 0x80);  // not inside a character
    text += part.text;
    tokens += part.tokens.size();
    ++events;
  }
  EXPECT_EQ(text, whole);
  EXPECT_EQ(tokens, 3u * kPieces);
  EXPECT_EQ(events, 5);
}

TEST_F(GenerationTest, TheEndOfSequenceTokenHasNoText) {
  const auto generation = Make();
  Take<Accepted>(*generation);
  SequenceOutput output = Output("ab", Finish::kEos);  // "b" stands for an ordinary token as EOS
  generation->OnOutput(output);
  const Tokens tokens = Take<Tokens>(*generation);
  EXPECT_EQ(tokens.text, "a");
  EXPECT_THAT(tokens.tokens, SizeIs(2));
  EXPECT_EQ(Take<Finished>(*generation).reason, Finished::Reason::kEos);
}

TEST_F(GenerationTest, AStopStringEndsTheAnswerBeforeIt) {
  const auto generation = Make({"END"});
  Take<Accepted>(*generation);
  EXPECT_EQ(generation->OnOutput(Output("abE")), Progress::kRunning);
  EXPECT_EQ(Take<Tokens>(*generation).text, "ab");
  EXPECT_EQ(generation->OnOutput(Output("NDxyz")), Progress::kFinishedEarly);
  const Tokens rest = Take<Tokens>(*generation);
  EXPECT_EQ(rest.text, "");
  EXPECT_THAT(rest.tokens, SizeIs(2));
  const Finished finished = Take<Finished>(*generation);
  EXPECT_EQ(finished.reason, Finished::Reason::kStop);
  EXPECT_EQ(finished.stop, "END");
  EXPECT_EQ(finished.usage.completion_tokens, 5u);
  EXPECT_EQ(generation->OnOutput(Output("more")), Progress::kFinishedEarly);
  EXPECT_FALSE(generation->Next().has_value());
}

TEST_F(GenerationTest, AnUnfinishedCharacterAndAHeldBackStopComeAtTheEnd) {
  const auto generation = Make({"\xE2\x82\xAC\xE2\x82\xAC"});
  Take<Accepted>(*generation);
  generation->OnOutput(Output("\xE2\x82\xAC\xE2"));
  EXPECT_EQ(Take<Tokens>(*generation).text, "");
  generation->OnOutput(Output("", Finish::kMaxTokens));
  EXPECT_EQ(Take<Tokens>(*generation).text, "€\uFFFD");
}

TEST_F(GenerationTest, LogprobsComeWithTheTokensBytes) {
  const auto generation = Make({}, 2);
  Take<Accepted>(*generation);
  SequenceOutput output = Output("a");
  output.tokens[0].logprob = -0.5f;
  output.tokens[0].top = {{'a', -0.5f}, {FakeTokenizer::kEos, -1.5f}};
  generation->OnOutput(output);
  const Tokens tokens = Take<Tokens>(*generation);
  EXPECT_EQ(tokens.tokens[0].logprob, -0.5f);
  ASSERT_THAT(tokens.tokens[0].top, SizeIs(2));
  EXPECT_EQ(tokens.tokens[0].top[0].bytes, "a");
  EXPECT_EQ(tokens.tokens[0].top[1].bytes, "<eos>");
}

TEST_F(GenerationTest, TheFirstEndCountsAndTokensBeforeItAreKept) {
  const auto generation = Make();
  generation->OnOutput(Output("a"));
  generation->Fail(absl::UnavailableError("rank 3 is lost"));
  generation->Fail(absl::InternalError("later"));
  Take<Accepted>(*generation);
  EXPECT_EQ(Take<Tokens>(*generation).text, "a");
  EXPECT_THAT(Take<absl::Status>(*generation),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 3")));
  EXPECT_FALSE(generation->Next().has_value());
}

TEST_F(GenerationTest, AReplicaThatFailsOrSendsTooMuchIsAnInternalError) {
  const auto failed = Make();
  SequenceOutput output = Output("", Finish::kFailed);
  output.error = "no finite logit";
  EXPECT_EQ(failed->OnOutput(output), Progress::kFinished);
  Take<Accepted>(*failed);
  EXPECT_THAT(Take<absl::Status>(*failed),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("no finite logit")));

  const auto flooded = Make();
  EXPECT_EQ(flooded->OnOutput(Output("0123456789x")), Progress::kFinishedEarly);
  Take<Accepted>(*flooded);
  EXPECT_EQ(Take<Tokens>(*flooded).text, "0123456789");
  EXPECT_THAT(Take<absl::Status>(*flooded),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("more than the 10 tokens")));
}

}  // namespace
}  // namespace skein::coordinator

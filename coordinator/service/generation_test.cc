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

using serving::RequestId;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Finish = serving::Finish;
using Progress = Generation::Progress;

serving::AnswerOutput Output(const std::string& text, Finish finish = Finish::kNotFinished,
                             int32_t answer = 0) {
  serving::AnswerOutput output{.request_id = RequestId(1), .answer = answer, .finish = finish};
  for (const char byte : text) output.tokens.push_back({.id = static_cast<uint8_t>(byte)});
  return output;
}

class GenerationTest : public ::testing::Test {
 protected:
  std::shared_ptr<Generation> Make(ValidRequest valid) {
    valid.request.prompt = {1, 2, 3};
    valid.request.max_tokens = 10;
    return std::make_shared<Generation>(
        RequestId(1), "req-1", valid, &model_, &clock_,
        [this](Generation::Ready ready) { ++(ready == Generation::Ready::kAll ? ready_ : more_); });
  }
  std::shared_ptr<Generation> MakeAnswers(int32_t count, std::vector<std::string> stops = {}) {
    ValidRequest valid{.stops = std::move(stops)};
    valid.request.answers.clear();
    for (int32_t i = 0; i < count; ++i) valid.request.answers.push_back({.index = i});
    return Make(std::move(valid));
  }
  std::shared_ptr<Generation> Make(std::vector<std::string> stops = {}, int32_t logprobs = -1) {
    ValidRequest valid;
    valid.request.sampling.seed = 5;
    valid.request.sampling.logprobs = logprobs;
    valid.stops = std::move(stops);
    return Make(std::move(valid));
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
  int ready_ = 0;  // how often the client was told kAll
  int more_ = 0;
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
  generation->Dispatch();
  clock_.Advance(absl::Seconds(1));
  serving::AnswerOutput begin = Output("ab");
  begin.cached_tokens = 2;
  EXPECT_EQ(generation->OnOutput(begin), Progress::kRunning);
  EXPECT_EQ(generation->OnOutput(Output("c")), Progress::kRunning);
  EXPECT_EQ(more_, 2);
  EXPECT_EQ(ready_, 0);
  generation->OnOutputsEnd();
  EXPECT_EQ(ready_, 1);
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
  EXPECT_EQ(finished.usage.cached_tokens, 2u);
  EXPECT_EQ(finished.usage.queue_time, absl::Seconds(1));
  EXPECT_EQ(finished.usage.first_token_time, absl::Seconds(2));
  EXPECT_EQ(finished.usage.total_time, absl::Seconds(4));
  EXPECT_FALSE(generation->Next().has_value());
}

TEST_F(GenerationTest, AVeryLargeEventIsCutBetweenCharacters) {
  constexpr int kPieces = 3000;
  const std::string piece = "a" + std::string(85, '?') + "\xE2\x82\xAC";  // 89 bytes: odd cuts
  const ServedModel model = MakeFakeModel({piece, "\xE2\x82\xAC"}, 20'000);
  std::string whole;
  ValidRequest valid;
  valid.request.max_tokens = 19'000;
  Generation generation(RequestId(1), "req-1", valid, &model, &clock_, [](Generation::Ready) {});
  serving::AnswerOutput output{.request_id = RequestId(1)};
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
  serving::AnswerOutput output =
      Output("ab", Finish::kEos);  // "b" stands for an ordinary token as EOS
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

TEST_F(GenerationTest, LogprobsComeWithTheTokens) {
  const auto generation = Make({}, 2);
  Take<Accepted>(*generation);
  serving::AnswerOutput output = Output("a");
  output.tokens[0].logprob = -0.5f;
  output.tokens[0].top_logprobs = {{'a', -0.5f}, {FakeTokenizer::kEos, -1.5f}};
  generation->OnOutput(output);
  const Tokens tokens = Take<Tokens>(*generation);
  EXPECT_EQ(tokens.tokens[0].logprob, -0.5f);
  ASSERT_THAT(tokens.tokens[0].top_logprobs, SizeIs(2));
  EXPECT_EQ(tokens.tokens[0].top_logprobs[0].id, 'a');
  EXPECT_EQ(tokens.tokens[0].top_logprobs[1].id, FakeTokenizer::kEos);
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

TEST_F(GenerationTest, AReplicaThatFailsIsAnInternalError) {
  const auto failed = Make();
  serving::AnswerOutput output = Output("", Finish::kFailed);
  output.error = "no finite logit";
  EXPECT_EQ(failed->OnOutput(output), Progress::kFinished);
  Take<Accepted>(*failed);
  EXPECT_THAT(Take<absl::Status>(*failed),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("no finite logit")));
}

TEST_F(GenerationTest, AnOutputIsCheckedAgainstTheAnswerSoFar) {
  const auto generation = MakeAnswers(2, {"XY"});
  SKEIN_EXPECT_OK(generation->Check(Output("0123456789")));
  EXPECT_THAT(generation->Check(Output("0123456789x")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than the 10 tokens")));
  EXPECT_THAT(
      generation->Check(Output("x", Finish::kNotFinished, 2)),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("answer 2 of a request for 2")));
  generation->OnOutput(Output("0123456"));
  EXPECT_THAT(generation->Check(Output("789x")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than the 10 tokens")));
  SKEIN_EXPECT_OK(generation->Check(Output("789x", Finish::kNotFinished, 1)));
  // An answer that ended here by a stop string may still be going on there.
  generation->OnOutput(Output("XY", Finish::kNotFinished, 1));
  SKEIN_EXPECT_OK(generation->Check(Output("late", Finish::kCancelled, 1)));
}

// ---- Several answers ----

TEST_F(GenerationTest, AnswersHaveTheirOwnTextAndEndAndTakeTurns) {
  const auto generation = MakeAnswers(2, {"XY"});
  Take<Accepted>(*generation);
  EXPECT_EQ(generation->OnOutput(Output("abX", Finish::kNotFinished, 0)), Progress::kRunning);
  EXPECT_EQ(generation->OnOutput(Output("cdX", Finish::kNotFinished, 1)), Progress::kRunning);
  const Tokens first = Take<Tokens>(*generation);
  EXPECT_EQ(first.answer, 0);
  EXPECT_EQ(first.text, "ab");
  generation->OnOutput(Output("e", Finish::kNotFinished, 0));
  const Tokens second = Take<Tokens>(*generation);
  EXPECT_EQ(second.answer, 1);
  EXPECT_EQ(second.text, "cd");
  EXPECT_EQ(Take<Tokens>(*generation).text, "Xe");

  EXPECT_EQ(generation->OnOutput(Output("Y", Finish::kNotFinished, 1)),
            Progress::kAnswerFinishedEarly);
  Take<Tokens>(*generation);
  const Finished stopped = Take<Finished>(*generation);
  EXPECT_EQ(stopped.answer, 1);
  EXPECT_EQ(stopped.reason, Finished::Reason::kStop);
  EXPECT_EQ(stopped.usage.completion_tokens, 4u);
  EXPECT_EQ(generation->OnOutput(Output("late", Finish::kMaxTokens, 1)), Progress::kRunning);

  EXPECT_EQ(generation->OnOutput(Output("f", Finish::kEos, 0)), Progress::kFinished);
  EXPECT_EQ(Take<Tokens>(*generation).answer, 0);
  const Finished last = Take<Finished>(*generation);
  EXPECT_EQ(last.answer, 0);
  EXPECT_EQ(last.usage.completion_tokens, 5u);
  EXPECT_FALSE(generation->Next().has_value());
}

TEST_F(GenerationTest, NothingComesThroughAnAnswerThatHasEnded) {
  ValidRequest valid;
  valid.request.prompt_logprobs = 0;
  valid.request.answers = {{.index = 0}, {.index = 1}};
  const auto generation = Make(std::move(valid));
  Take<Accepted>(*generation);
  generation->OnOutput(Output("a", Finish::kEos, 1));
  Take<Tokens>(*generation);
  Take<Finished>(*generation);
  serving::AnswerOutput late = Output("", Finish::kNotFinished, 1);
  late.prompt_logprobs = {{.id = -7}};
  SKEIN_EXPECT_OK(generation->Check(late));
  EXPECT_EQ(generation->OnOutput(late), Progress::kRunning);
  generation->OnOutput(Output("b"));
  EXPECT_THAT(Take<Tokens>(*generation).prompt_logprobs, IsEmpty());
}

TEST_F(GenerationTest, AnAnswerThatFailsFailsTheRequest) {
  const auto generation = MakeAnswers(2);
  serving::AnswerOutput output = Output("", Finish::kFailed, 1);
  output.error = "no finite logit";
  EXPECT_EQ(generation->OnOutput(output), Progress::kFinishedEarly);
  Take<Accepted>(*generation);
  EXPECT_THAT(Take<absl::Status>(*generation),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("no finite logit")));
}

// ---- Another replica goes on ----

TEST_F(GenerationTest, ItGoesOnFromTheJournalWithAnswersThatAreNotFinished) {
  ValidRequest valid;
  valid.request.answers = {{.index = 0}, {.index = 1}, {.index = 2}};
  valid.request.sampling.mirostat_tau = 5;
  valid.request.sampling.seed = 7;
  const auto generation = Make(std::move(valid));
  serving::Request request = generation->Dispatch();
  EXPECT_THAT(request.answers, SizeIs(3));
  EXPECT_FALSE(request.answers[0].mu.has_value());
  serving::AnswerOutput output = Output("ab", Finish::kNotFinished, 0);
  output.tokens[0].mu = 9;
  output.tokens[1].mu = 8.5f;
  generation->OnOutput(output);
  generation->OnOutput(Output("c", Finish::kMaxTokens, 1));
  EXPECT_TRUE(generation->OnReplicaLost(absl::UnavailableError("gone"), 3));
  request = generation->Dispatch();
  EXPECT_THAT(request.prompt, ElementsAre(1, 2, 3));
  EXPECT_EQ(request.id, RequestId(1));
  EXPECT_EQ(request.sampling.seed, 7u);
  EXPECT_EQ(request.max_tokens, 10);
  ASSERT_THAT(request.answers, SizeIs(2));
  EXPECT_EQ(request.answers[0].index, 0);
  EXPECT_THAT(request.answers[0].output, ElementsAre('a', 'b'));
  EXPECT_EQ(request.answers[0].mu, 8.5f);
  EXPECT_EQ(request.answers[1].index, 2);
  EXPECT_THAT(request.answers[1].output, IsEmpty());
  EXPECT_FALSE(request.answers[1].mu.has_value());
}

TEST_F(GenerationTest, CharactersAndStopStringsMaySpanReplicas) {
  const auto generation = Make({"STOP"});
  Take<Accepted>(*generation);
  generation->Dispatch();
  generation->OnOutput(Output("a\xE2\x82"));
  EXPECT_TRUE(generation->OnReplicaLost(absl::UnavailableError("gone"), 0));
  generation->Dispatch();
  generation->OnOutput(
      Output("\xAC"
             "ST"));
  EXPECT_EQ(Take<Tokens>(*generation).text, "a€");
  EXPECT_TRUE(generation->OnReplicaLost(absl::UnavailableError("gone"), 0));
  generation->Dispatch();
  serving::AnswerOutput rest = Output("OP");
  rest.cached_tokens = 3;  // the second replica's cache saved nobody anything
  EXPECT_EQ(generation->OnOutput(rest), Progress::kFinishedEarly);
  EXPECT_EQ(Take<Tokens>(*generation).text, "");
  const Finished finished = Take<Finished>(*generation);
  EXPECT_EQ(finished.reason, Finished::Reason::kStop);
  EXPECT_EQ(finished.usage.cached_tokens, 0u);
  EXPECT_EQ(finished.usage.completion_tokens, 8u);
}

TEST_F(GenerationTest, WhenOnlyTheWordOfTheEndIsLostItEnds) {
  struct Case {
    std::string text;
    int32_t last;
    Finished::Reason reason;
    std::string want;
  };
  for (const Case& c : {Case{"012345678", '9', Finished::Reason::kMaxTokens, "0123456789"},
                        Case{"ab", 'e', Finished::Reason::kEos, "ab"}}) {
    ValidRequest valid;
    valid.request.eos_token_ids = {'e'};
    const auto generation = Make(std::move(valid));
    Take<Accepted>(*generation);
    generation->Dispatch();
    serving::AnswerOutput output = Output(c.text);
    output.tokens.push_back({.id = c.last});
    EXPECT_EQ(generation->OnOutput(output), Progress::kRunning);
    EXPECT_FALSE(generation->OnReplicaLost(absl::UnavailableError("gone"), 3));
    EXPECT_EQ(Take<Tokens>(*generation).text, c.want);
    EXPECT_EQ(Take<Finished>(*generation).reason, c.reason);
  }
}

TEST_F(GenerationTest, RetriesCountWhileNoTokenComes) {
  const auto generation = Make();
  const auto lose = [&] {
    generation->Dispatch();
    return generation->OnReplicaLost(absl::UnavailableError("rank 3 is lost"), 1);
  };
  EXPECT_TRUE(lose());
  generation->Dispatch();
  generation->OnOutput(Output("a"));
  EXPECT_TRUE(generation->OnReplicaLost(absl::UnavailableError("rank 3 is lost"), 1));
  EXPECT_TRUE(lose());
  ready_ = 0;
  EXPECT_FALSE(lose());
  EXPECT_EQ(ready_, 1);
  Take<Accepted>(*generation);
  EXPECT_EQ(Take<Tokens>(*generation).text, "a");
  EXPECT_THAT(Take<absl::Status>(*generation),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("after 3 retries"), HasSubstr("2 replicas gave no token"),
                             HasSubstr("rank 3 is lost"))));
}

TEST_F(GenerationTest, ThePromptsLogprobsComeOnceBeforeTheFirstToken) {
  ValidRequest valid;
  valid.request.prompt_logprobs = 0;
  const auto generation = Make(std::move(valid));
  Take<Accepted>(*generation);
  const auto send = [&](std::vector<serving::SampledToken> rows, const std::string& text) {
    serving::AnswerOutput output = Output(text);
    output.prompt_logprobs = std::move(rows);
    generation->OnOutput(output);
  };
  EXPECT_EQ(generation->Dispatch().prompt_logprobs, 0);
  send({{.id = 2, .logprob = -1}}, "");
  EXPECT_TRUE(generation->OnReplicaLost(absl::UnavailableError("gone"), 3));
  EXPECT_EQ(generation->Dispatch().prompt_logprobs, 0);
  send({{.id = 2, .logprob = -1}}, "");
  send({{.id = 3, .logprob = -2}}, "a");
  const Tokens tokens = Take<Tokens>(*generation);
  ASSERT_THAT(tokens.prompt_logprobs, SizeIs(2));
  EXPECT_EQ(tokens.prompt_logprobs[0].logprob, -1);
  EXPECT_EQ(tokens.prompt_logprobs[1].id, 3);
  EXPECT_EQ(tokens.text, "a");
  EXPECT_TRUE(generation->OnReplicaLost(absl::UnavailableError("gone"), 3));
  EXPECT_EQ(generation->Dispatch().prompt_logprobs, -1);
}

}  // namespace
}  // namespace skein::coordinator

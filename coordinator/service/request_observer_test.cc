// What an observer hears of requests, in order, by a clock that the test moves.
#include "coordinator/service/request_observer.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "coordinator/service/dispatcher_fixture.h"
#include "coordinator/service/inference_service.h"
#include "gmock/gmock.h"

namespace skein::coordinator {
namespace {

using ::testing::ElementsAre;
using Finish = serving::Finish;

// Each call as a line.
class Recorder final : public RequestObserver {
 public:
  std::vector<std::string> Take() { return std::exchange(lines_, {}); }

  void OnRefused(absl::StatusCode code) override { Add("refused ", Name(code)); }
  void OnAdmitted(int64_t prompt_tokens) override { Add("admitted ", prompt_tokens); }
  void OnDispatched(absl::Duration queued) override { Add("dispatched ", Text(queued)); }
  void OnFirstToken(absl::Duration waited) override { Add("first ", Text(waited)); }
  void OnTokens(int64_t tokens, std::optional<absl::Duration> gap) override {
    Add("tokens ", tokens, " ", Text(gap));
  }
  void OnAnswerEnd(AnswerEnd end, int64_t tokens,
                   std::optional<absl::Duration> per_token) override {
    constexpr const char* kNames[] = {"eos", "stop", "max", "error", "cancelled"};
    Add("answer ", kNames[static_cast<int>(end)], " ", tokens, " ", Text(per_token));
  }
  void OnRequestEnd(absl::StatusCode code, absl::Duration since_arrival) override {
    Add("request ", Name(code), " ", Text(since_arrival));
  }

 private:
  static std::string Text(std::optional<absl::Duration> of) {
    return of.has_value() ? absl::FormatDuration(*of) : "-";
  }
  static std::string Name(absl::StatusCode code) { return absl::StatusCodeToString(code); }
  template <typename... Parts>
  void Add(const Parts&... parts) {
    lines_.push_back(absl::StrCat(parts...));
  }

  std::vector<std::string> lines_;
};

class RequestObserverTest : public DispatcherTest {
 protected:
  std::shared_ptr<Generation> Begin(const std::string& prompt, uint32_t n = 1,
                                    const std::vector<std::string>& stops = {}) {
    GenerateRequest request;
    request.input = prompt;
    request.max_tokens = 4;
    request.n = n;
    request.stops = stops;
    auto generation = service_.Generate(request, [](Generation::Ready) {});
    SKEIN_EXPECT_OK(generation.status());
    return generation.ok() ? *generation : nullptr;
  }
  RequestObserverTest() {
    SKEIN_EXPECT_OK(models_.Add({.model = {std::shared_ptr<void>(), &model_},
                                 .dispatcher = {std::shared_ptr<void>(), &dispatcher_},
                                 .observer = &recorder_}));
  }
  void Pass(int64_t milliseconds) { clock_.Advance(absl::Milliseconds(milliseconds)); }

  Recorder recorder_;
  ModelRegistry models_;
  InferenceService service_{&models_, &clock_, &recorder_};
};

TEST_F(RequestObserverTest, AWholeAnswerWithItsWaits) {
  AddReplica(1);
  Begin("abc");
  EXPECT_THAT(recorder_.Take(), ElementsAre("dispatched 0", "admitted 3"));
  Pass(30);
  Output(1, 1, "x", Finish::kNotFinished);
  EXPECT_THAT(recorder_.Take(), ElementsAre("first 30ms", "tokens 1 -"));
  Pass(4);
  Output(1, 1, "", Finish::kNotFinished);  // no tokens: nothing
  Output(1, 1, "yz", Finish::kNotFinished);
  EXPECT_THAT(recorder_.Take(), ElementsAre("tokens 2 4ms"));
  Pass(5);
  Output(1, 1, "", Finish::kEos);
  EXPECT_THAT(recorder_.Take(), ElementsAre("tokens 1 5ms", "answer eos 4 3ms", "request OK 39ms"));
}

TEST_F(RequestObserverTest, TheQueueAndTheRefused) {
  EXPECT_FALSE(service_.Generate({.input = std::string("a")}, [](Generation::Ready) {}).ok());
  EXPECT_FALSE(
      service_.Generate({.model = "other", .input = std::string("a")}, [](Generation::Ready) {})
          .ok());
  EXPECT_THAT(recorder_.Take(), ElementsAre("refused UNAVAILABLE", "refused NOT_FOUND"));
  AddReplica(1);
  const auto first = Begin("a");
  Begin("b");  // waits there
  recorder_.Take();
  Begin("cd");
  EXPECT_THAT(recorder_.Take(), ElementsAre("admitted 2"));
  Pass(250);
  Output(1, first->id().value(), "abcd", Finish::kMaxTokens);
  EXPECT_THAT(recorder_.Take(), ElementsAre("first 250ms", "tokens 4 -", "answer max 4 0",
                                            "request OK 250ms", "dispatched 250ms"));
}

TEST_F(RequestObserverTest, AnswersEndOneByOneAndTheRequestWithTheLast) {
  AddReplica(1, /*max_num_seqs=*/2);
  Begin("a", /*n=*/2, /*stops=*/{"!"});
  recorder_.Take();
  Pass(10);
  Output(1, 1, "x", Finish::kNotFinished, /*answer=*/1);
  Pass(2);
  Output(1, 1, "yz", Finish::kNotFinished, /*answer=*/0);
  EXPECT_THAT(recorder_.Take(), ElementsAre("first 10ms", "tokens 1 -", "tokens 2 -"));
  Pass(3);
  Output(1, 1, "u!v", Finish::kNotFinished, /*answer=*/1);  // what is behind the stop is not given
  EXPECT_THAT(recorder_.Take(), ElementsAre("tokens 2 5ms", "answer stop 3 2.5ms"));
  Output(1, 1, "", Finish::kEos, /*answer=*/0);
  EXPECT_THAT(recorder_.Take(),
              ElementsAre("tokens 1 3ms", "answer eos 3 1.5ms", "request OK 15ms"));
}

TEST_F(RequestObserverTest, ALostReplicaShowsAsAGapAndNotAsASecondStart) {
  AddReplica(1);
  Begin("a");
  Pass(1);
  Output(1, 1, "x", Finish::kNotFinished);
  recorder_.Take();
  Down({1});
  Pass(500);
  AddReplica(2);
  EXPECT_THAT(recorder_.Take(), ElementsAre());
  Output(2, 1, "y", Finish::kNotFinished);
  EXPECT_THAT(recorder_.Take(), ElementsAre("tokens 1 500ms"));
}

TEST_F(RequestObserverTest, FailuresAndClientsThatGo) {
  AddReplica(1);
  Begin("a", /*n=*/1);
  Pass(5);
  Output(1, 1, "x", Finish::kFailed);
  const auto left = Begin("b");
  Pass(7);
  recorder_.Take();
  service_.Cancel({left});
  service_.Cancel({left});  // the second time is nothing new
  left->Fail(absl::CancelledError("as you wished"));
  EXPECT_EQ(ErrorOf(*left).code(), absl::StatusCode::kCancelled);  // the client has its word
  EXPECT_THAT(recorder_.Take(), ElementsAre("answer cancelled 0 -", "request CANCELLED 7ms"));
  Begin("c");
  recorder_.Take();
  dispatcher_.FailAll(absl::UnavailableError("enough"));
  EXPECT_THAT(recorder_.Take(), ElementsAre("answer error 0 -", "request UNAVAILABLE 0"));
}

TEST_F(RequestObserverTest, AFailureEndsOnlyTheAnswersThatWereOpen) {
  AddReplica(1, /*max_num_seqs=*/2);
  const auto generation = Begin("a", /*n=*/2);
  Output(1, 1, "x", Finish::kEos, /*answer=*/0);
  recorder_.Take();
  Output(1, 1, "y", Finish::kFailed, /*answer=*/1);
  EXPECT_THAT(recorder_.Take(),
              ElementsAre("tokens 1 -", "answer error 1 -", "request INTERNAL 0"));
  service_.Cancel({generation});  // it has ended
  EXPECT_THAT(recorder_.Take(), ElementsAre());
}

// The earlier process told the rest.
TEST_F(RequestObserverTest, WhatAnEarlierProcessLeftIsAdmittedHereUnlessItHadEnded) {
  const auto restored = [&](const std::vector<Event>& events) {
    GenerateRequest request;
    request.input = std::string("abc");
    request.max_tokens = 4;
    const HostedModel hosted = *service_.Find("");
    const auto generation =
        service_.Make(hosted, *service_.Check(hosted, request), "id", [](Generation::Ready) {});
    generation->Restore(clock_.Now(), events);
    return generation;
  };
  const Tokens whole = {.text = "x", .tokens = {{.id = 'x'}, {.id = FakeTokenizer::kEos}}};
  restored({Accepted{}, whole, Finished{}});
  EXPECT_THAT(recorder_.Take(), ElementsAre());
  restored({Accepted{}, whole});
  EXPECT_THAT(recorder_.Take(), ElementsAre("admitted 3", "answer eos 2 0", "request OK 0"));
  const auto running = restored({Accepted{}});
  service_.Readmit(*service_.Find(""), running, absl::ZeroDuration());
  EXPECT_THAT(recorder_.Take(), ElementsAre("admitted 3"));
}

TEST_F(RequestObserverTest, WhetherAFullQueueRefuses) {
  AddReplica(1);
  for (const char* prompt : {"a", "b", "c", "d"}) Begin(prompt);  // the first two at the replica
  recorder_.Take();
  const HostedModel hosted = *service_.Find("");
  GenerateRequest request;
  request.input = std::string("e");
  using IfFull = InferenceService::IfFull;
  const auto admit = [&](IfFull if_full) {
    return service_.Admit(
        hosted,
        service_.Make(hosted, *service_.Check(hosted, request), "", [](Generation::Ready) {}),
        if_full);
  };
  EXPECT_TRUE(absl::IsResourceExhausted(admit(IfFull::kTell)));
  EXPECT_THAT(recorder_.Take(), ElementsAre());
  EXPECT_TRUE(absl::IsResourceExhausted(admit(IfFull::kRefuse)));
  EXPECT_THAT(recorder_.Take(), ElementsAre("refused RESOURCE_EXHAUSTED"));
  SKEIN_EXPECT_OK(admit(IfFull::kExceed));
  EXPECT_THAT(recorder_.Take(), ElementsAre("admitted 1"));
  EXPECT_EQ(dispatcher_.counts().queued, 3);
  dispatcher_.StartDrain();
  recorder_.Take();
  EXPECT_TRUE(absl::IsUnavailable(admit(IfFull::kRefuse)));
  EXPECT_THAT(recorder_.Take(), ElementsAre("refused UNAVAILABLE"));
  for (const IfFull if_full : {IfFull::kTell, IfFull::kExceed}) SKEIN_EXPECT_OK(admit(if_full));
  EXPECT_THAT(recorder_.Take(), ElementsAre("admitted 1", "admitted 1"));
}

}  // namespace
}  // namespace skein::coordinator

#include "coordinator/service/dispatcher.h"

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "coordinator/service/fake_tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using serving::Finish;
using serving::RequestId;

class FakeLeader final : public RankLink {
 public:
  void SendPlan(const plan::Plan&) override {}
  void SendUpdates(serving::RequestUpdates updates) override {
    for (const serving::Request& request : updates.requests) requests.push_back(request.id.value());
    for (const serving::Request& request : updates.requests) starts.push_back(request);
    for (const serving::RequestId id : updates.cancelled) cancelled.push_back(id.value());
    for (const auto& answer : updates.cancelled_answers) cancelled_answers.push_back(answer);
  }
  uint64_t messages_sent() const override { return 0; }
  void SendShutdown(const std::string&, int) override {}
  void Close(const absl::Status&) override {}

  std::vector<uint64_t> requests;
  std::vector<serving::Request> starts;  // the same, whole
  std::vector<uint64_t> cancelled;
  std::vector<serving::CancelledAnswer> cancelled_answers;
};

struct Asked {
  std::vector<int32_t> prompt = {1};
  int n = 1;
  int32_t priority = 0;
  std::vector<std::string> stops = {};
  absl::Time deadline = absl::InfiniteFuture();
  int32_t prompt_logprobs = -1;  // none
};

class DispatcherTest : public ::testing::Test {
 protected:
  std::shared_ptr<FakeLeader> AddReplica(uint64_t id, int32_t max_num_seqs = 1,
                                         int64_t context_length = 100) {
    auto leader = std::make_shared<FakeLeader>();
    dispatcher_.OnReplicaUp({ReplicaId(id), absl::StrCat("replica ", id), max_num_seqs, leader,
                             /*page_size=*/4, /*pages=*/100, context_length});
    return leader;
  }

  std::shared_ptr<Generation> MakeRequest(uint64_t id, const Asked& asked = {}) {
    ValidRequest valid;
    valid.request.prompt = asked.prompt;
    valid.request.max_tokens = 10;
    valid.request.eos_token_ids = model_.eos_token_ids;
    valid.request.priority = asked.priority;
    valid.request.deadline = asked.deadline;
    valid.request.prompt_logprobs = asked.prompt_logprobs;
    valid.request.answers.clear();
    for (int i = 0; i < asked.n; ++i) {
      valid.request.answers.push_back({.index = i});
    }
    valid.stops = asked.stops;
    return std::make_shared<Generation>(RequestId(id), absl::StrCat("req-", id), valid, &model_,
                                        &clock_, [](Generation::Ready) {});
  }

  std::shared_ptr<Generation> Admit(uint64_t id, const Asked& asked = {}) {
    auto generation = MakeRequest(id, asked);
    SKEIN_EXPECT_OK(dispatcher_.Admit(generation));
    return generation;
  }

  void Down(const std::vector<uint64_t>& ids, const std::string& why = "the job is gone") {
    std::vector<ReplicaId> replicas;
    for (const uint64_t id : ids) replicas.emplace_back(id);
    dispatcher_.OnReplicasDown(replicas, absl::UnavailableError(why));
  }

  void Output(uint64_t replica, uint64_t request, const std::string& text, Finish finish,
              int32_t answer = 0) {
    serving::AnswerOutput output{
        .request_id = RequestId(request), .answer = answer, .finish = finish};
    for (const char byte : text) output.tokens.push_back({.id = static_cast<uint8_t>(byte)});
    if (finish == Finish::kEos) output.tokens.push_back({.id = FakeTokenizer::kEos});
    SKEIN_EXPECT_OK(dispatcher_.OnStepOutput(ReplicaId(replica), {.answers = {output}}));
  }

  // The error that ended the request; OK if none did.
  static absl::Status ErrorOf(Generation& generation) {
    while (const std::optional<Event> event = generation.Next()) {
      if (const auto* error = std::get_if<absl::Status>(&*event)) return *error;
    }
    return absl::OkStatus();
  }

  static std::string TextOf(Generation& generation) {
    std::string text;
    while (const std::optional<Event> event = generation.Next()) {
      if (const auto* tokens = std::get_if<Tokens>(&*event)) text += tokens->text;
    }
    return text;
  }

  const ServedModel model_ = MakeFakeModel();
  SimulatedClock clock_;
  std::vector<bool> serving_;
  Dispatcher dispatcher_{
      {.max_queue = 2, .on_serving = [this](bool serving) { serving_.push_back(serving); }},
      &clock_};
};

TEST_F(DispatcherTest, WithoutReplicasRequestsAreUnavailable) {
  EXPECT_THAT(dispatcher_.Admit(MakeRequest(1)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no replica serves")));
  EXPECT_FALSE(dispatcher_.serving());
  EXPECT_EQ(dispatcher_.counts().queued, 0);
}

TEST_F(DispatcherTest, RequestsSpreadThenWaitThenAreRefused) {
  const auto first = AddReplica(1);
  const auto second = AddReplica(2);
  for (uint64_t id = 1; id <= 6; ++id) Admit(id);
  EXPECT_THAT(first->requests, ElementsAre(1, 3));
  EXPECT_THAT(second->requests, ElementsAre(2, 4));
  EXPECT_EQ(dispatcher_.counts().queued, 2);
  EXPECT_EQ(dispatcher_.counts().running, 4);
  EXPECT_THAT(dispatcher_.Admit(MakeRequest(7)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("2 requests wait")));

  Output(2, 2, "x", Finish::kEos);
  EXPECT_THAT(second->requests, ElementsAre(2, 4, 5));
  EXPECT_EQ(dispatcher_.counts().queued, 1);
  Admit(8);
  Output(1, 1, "x", Finish::kEos);
  EXPECT_THAT(first->requests, ElementsAre(1, 3, 6));
}

TEST_F(DispatcherTest, ACancelledRequestLeavesItsReplicaOrTheQueueAtOnce) {
  const auto leader = AddReplica(1);
  for (uint64_t id = 1; id <= 4; ++id) Admit(id);
  dispatcher_.Cancel({RequestId(3)});  // queued
  EXPECT_THAT(leader->cancelled, IsEmpty());
  EXPECT_EQ(dispatcher_.counts().queued, 1);
  dispatcher_.Cancel({RequestId(1)});  // running: 4 takes its place
  EXPECT_THAT(leader->cancelled, ElementsAre(1));
  EXPECT_THAT(leader->requests, ElementsAre(1, 2, 4));
  Output(1, 1, "late", Finish::kNotFinished);
  dispatcher_.Cancel({RequestId(99)});
  EXPECT_EQ(dispatcher_.counts().running, 2);
}

TEST_F(DispatcherTest, AStopStringCancelsAtTheReplica) {
  const auto leader = AddReplica(1);
  Admit(1, {.stops = {"b"}});
  Output(1, 1, "abc", Finish::kNotFinished);
  EXPECT_THAT(leader->cancelled, ElementsAre(1));
  EXPECT_EQ(dispatcher_.counts().running, 0);
  Admit(2, {.stops = {"b"}});
  Output(1, 2, "ab", Finish::kEos);
  EXPECT_THAT(leader->cancelled, ElementsAre(1));
}

TEST_F(DispatcherTest, OnlyTheStoppedAnswerOfSeveralIsCancelled) {
  const auto leader = AddReplica(1, 2);
  const auto generation = Admit(1, {.n = 2, .stops = {"b"}});
  Output(1, 1, "ab", Finish::kNotFinished, /*answer=*/1);
  EXPECT_THAT(leader->cancelled, IsEmpty());
  EXPECT_THAT(leader->cancelled_answers, ElementsAre(serving::CancelledAnswer{RequestId(1), 1}));
  Output(1, 1, "late", Finish::kNotFinished, /*answer=*/1);
  Output(1, 1, "", Finish::kCancelled, /*answer=*/1);
  EXPECT_EQ(dispatcher_.counts().running, 1);
  Output(1, 1, "xb", Finish::kNotFinished, /*answer=*/0);
  EXPECT_THAT(leader->cancelled, ElementsAre(1));
  EXPECT_EQ(dispatcher_.counts().running, 0);
  SKEIN_EXPECT_OK(ErrorOf(*generation));
}

TEST_F(DispatcherTest, RequestsOfALostReplicaGoToTheFrontInTheirOrderAndOnFromTheJournal) {
  const auto first = AddReplica(1);
  const auto second = AddReplica(2);
  std::vector<std::shared_ptr<Generation>> requests;
  for (uint64_t id = 1; id <= 6; ++id) requests.push_back(Admit(id));
  EXPECT_THAT(first->requests, ElementsAre(1, 3));  // 2 and 4 are with the other one, 5 and 6 wait
  Output(1, 1, "ab", Finish::kNotFinished);
  Down({1});
  EXPECT_TRUE(dispatcher_.serving());
  EXPECT_EQ(dispatcher_.counts().queued, 4);
  Output(1, 1, "late", Finish::kNotFinished);
  for (const uint64_t id : {2, 4}) Output(2, id, "x", Finish::kEos);
  EXPECT_THAT(second->requests, ElementsAre(2, 4, 1, 3));
  EXPECT_THAT(second->starts[2].answers[0].output, ElementsAre('a', 'b'));
  EXPECT_THAT(second->starts[3].answers[0].output, IsEmpty());
  EXPECT_EQ(dispatcher_.counts().migrations, 1);
  Output(2, 1, "c", Finish::kEos);
  EXPECT_EQ(TextOf(*requests[0]), "abc");
  EXPECT_THAT(serving_, ElementsAre(true, true));
}

// One message may hold several steps' outputs of an answer, and of its prompt.
TEST_F(DispatcherTest, AStepsOutputsAreReadInTheirOrder) {
  const auto first = AddReplica(1, 2);
  const auto one = Admit(1, {.prompt = {'p', 'q', 'r', 's', 't'}, .prompt_logprobs = 0});
  const auto other = Admit(2);
  serving::StepOutput step;
  const auto add = [&](uint64_t request, const std::string& prompt, const std::string& text) {
    serving::AnswerOutput& answer = step.answers.emplace_back();
    answer.request_id = RequestId(request);
    for (const char byte : prompt) answer.prompt_logprobs.push_back({.id = byte});
    for (const char byte : text) answer.tokens.push_back({.id = byte});
  };
  add(1, "qr", "");
  add(2, "", "x");
  add(1, "st", "ab");
  add(2, "", "yz");
  add(1, "", "c");
  SKEIN_EXPECT_OK(dispatcher_.OnStepOutput(ReplicaId(1), step));

  std::string prompt, text, ids;
  while (const std::optional<Event> event = one->Next()) {
    const auto* tokens = std::get_if<Tokens>(&*event);
    if (tokens == nullptr) continue;
    for (const AnswerToken& token : tokens->prompt_logprobs) prompt += static_cast<char>(token.id);
    for (const AnswerToken& token : tokens->tokens) ids += static_cast<char>(token.id);
    text += tokens->text;
  }
  EXPECT_EQ(prompt, "qrst");
  EXPECT_EQ(ids, "abc");
  EXPECT_EQ(text, "abc");
  EXPECT_EQ(TextOf(*other), "xyz");
  // So does the journal, from which another replica goes on.
  Down({1});
  const auto second = AddReplica(2, 2);
  ASSERT_EQ(second->starts.size(), 2u);
  EXPECT_THAT(second->starts[0].answers[0].output, ElementsAre('a', 'b', 'c'));
  EXPECT_THAT(second->starts[1].answers[0].output, ElementsAre('x', 'y', 'z'));
}

TEST_F(DispatcherTest, ReplicasOfOneJobAreLostTogether) {
  AddReplica(1);
  const auto second = AddReplica(2);
  Admit(1);
  Down({1, 2});  // never from one to the other
  EXPECT_THAT(second->requests, IsEmpty());
  EXPECT_EQ(dispatcher_.counts().queued, 1);
  EXPECT_THAT(AddReplica(3)->requests, ElementsAre(1));
}

TEST_F(DispatcherTest, WithoutAReplicaRequestsWaitForOneAndNewOnesAreRefused) {
  AddReplica(1);
  const auto kept = Admit(1);
  const auto gone = Admit(2);
  Output(1, 1, "a", Finish::kNotFinished);
  Down({1});
  EXPECT_FALSE(dispatcher_.serving());
  EXPECT_THAT(serving_, ElementsAre(true, false));
  EXPECT_THAT(dispatcher_.Admit(MakeRequest(3)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no replica serves")));
  dispatcher_.Cancel({RequestId(2)});  // its client has gone, or its deadline passed
  clock_.Advance(absl::Seconds(29));
  dispatcher_.Tick();
  const auto leader = AddReplica(2);
  EXPECT_THAT(leader->requests, ElementsAre(1));
  EXPECT_THAT(leader->starts[0].answers[0].output, ElementsAre('a'));
  clock_.Advance(absl::Seconds(60));
  dispatcher_.Tick();
  Output(2, 1, "b", Finish::kEos);
  EXPECT_EQ(TextOf(*kept), "ab");
}

TEST_F(DispatcherTest, WhoeverWaitedTooLongForAReplicaIsToldWhy) {
  AddReplica(1);
  const auto moved = Admit(1);
  Down({1});
  AddReplica(2);
  const auto fresh = Admit(2);
  const auto queued = Admit(3);
  Down({2}, "rank 7 is lost");
  clock_.Advance(absl::Seconds(30) - absl::Milliseconds(1));
  dispatcher_.Tick();
  EXPECT_EQ(dispatcher_.counts().queued, 3);
  clock_.Advance(absl::Milliseconds(1));
  dispatcher_.Tick();
  EXPECT_EQ(dispatcher_.counts().queued, 0);
  for (const auto& [generation, retries] :
       {std::pair{moved, "after 1 retry"}, {fresh, "after 0 retries"}, {queued, "after 0"}}) {
    EXPECT_THAT(ErrorOf(*generation),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr(retries), HasSubstr("within 30s (--replica-wait)"),
                               HasSubstr("rank 7 is lost"))));
  }
}

TEST_F(DispatcherTest, AMovedRequestGoesToAReplicaThatItFitsHoweverBusy) {
  AddReplica(1);
  const auto moved = Admit(1, {.prompt = std::vector<int32_t>(50, 'p')});
  Output(1, 1, "ab", Finish::kNotFinished);
  const auto idle = AddReplica(2, 1, /*context_length=*/59);
  const auto busy = AddReplica(3, 1, /*context_length=*/60);
  Admit(2, {.prompt = std::vector<int32_t>(50, 'q')});
  EXPECT_THAT(busy->requests, ElementsAre(2));
  Down({1});
  EXPECT_THAT(idle->requests, IsEmpty());
  EXPECT_THAT(busy->requests, ElementsAre(2, 1));
  Output(3, 1, "c", Finish::kEos);
  EXPECT_EQ(TextOf(*moved), "abc");
}

TEST_F(DispatcherTest, AMovedRequestThatFitsNoReplicaWaitsForOneAndOthersPassIt) {
  AddReplica(1, 2);
  const auto moved = Admit(1, {.n = 2});
  Output(1, 1, "ab", Finish::kNotFinished, /*answer=*/1);
  const auto small = AddReplica(2);
  Down({1});
  EXPECT_THAT(small->requests, IsEmpty());
  Admit(2);
  EXPECT_THAT(small->requests, ElementsAre(2));
  clock_.Advance(absl::Seconds(29));
  dispatcher_.Tick();
  const auto large = AddReplica(3, 2);
  EXPECT_THAT(large->requests, ElementsAre(1));
  clock_.Advance(absl::Seconds(60));
  dispatcher_.Tick();
  Output(3, 1, "c", Finish::kEos, /*answer=*/1);
  // With one answer left it fits the small one, too.
  Down({3});
  EXPECT_THAT(small->requests, ElementsAre(2, 1));
  Output(2, 1, "x", Finish::kEos);
  SKEIN_EXPECT_OK(ErrorOf(*moved));
  EXPECT_EQ(dispatcher_.counts().running, 1);
}

TEST_F(DispatcherTest, WhoeverFittedNoReplicaForTooLongIsToldWhy) {
  AddReplica(1, 2, /*context_length=*/60);
  const auto moved = Admit(1, {.prompt = std::vector<int32_t>(50, 'p'), .n = 2});
  Down({1}, "rank 7 is lost");
  clock_.Advance(absl::Seconds(20));
  AddReplica(2, 1, /*context_length=*/60);
  AddReplica(3, 2, /*context_length=*/59);
  clock_.Advance(absl::Seconds(10) - absl::Milliseconds(1));
  dispatcher_.Tick();
  EXPECT_EQ(dispatcher_.counts().queued, 1);
  clock_.Advance(absl::Milliseconds(1));
  dispatcher_.Tick();
  EXPECT_EQ(dispatcher_.counts().queued, 0);
  EXPECT_THAT(
      ErrorOf(*moved),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr("no replica that it fits came within 30s (--replica-wait)"),
                     HasSubstr("replica 2: it runs 1 sequences at once"),
                     HasSubstr("replica 3: its context of 59 tokens is too short for a prompt of "
                               "50 and an answer of 10"),
                     HasSubstr("rank 7 is lost"))));
}

TEST_F(DispatcherTest, ANewRequestThatFitsNoReplicaIsRefused) {
  AddReplica(1);
  EXPECT_THAT(dispatcher_.Admit(MakeRequest(1, {.n = 2})),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("replica 1: it runs 1 sequences at once")));
  EXPECT_EQ(dispatcher_.counts().queued, 0);
}

TEST_F(DispatcherTest, ARequestThatGetsNoTokenIsGivenUpAfterSomeRetries) {
  uint64_t replica = 1;
  AddReplica(replica);
  const auto generation = Admit(1);
  const auto lose = [&] {
    Down({replica}, absl::StrCat("job ", replica, " is gone"));
    AddReplica(++replica);
  };
  for (int i = 0; i < 2; ++i) lose();
  Output(replica, 1, "a", Finish::kNotFinished);  // from here on they count anew
  for (int i = 0; i < 4; ++i) lose();
  EXPECT_EQ(dispatcher_.counts().running, 1);
  lose();
  EXPECT_EQ(dispatcher_.counts().running, 0);
  EXPECT_THAT(ErrorOf(*generation),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("after 6 retries"), HasSubstr("4 replicas gave no token"),
                             HasSubstr("--max-retries=3"), HasSubstr("job 7 is gone"))));
}

TEST_F(DispatcherTest, HigherPrioritiesGoFirstAndWaitingMakesUpForThem) {
  const auto leader = AddReplica(1);
  for (const uint64_t id : {1, 2}) Admit(id);
  Admit(3);
  clock_.Advance(absl::Seconds(9));
  Admit(4, {.priority = 1});
  for (const uint64_t id : {1, 2}) Output(1, id, "x", Finish::kEos);
  EXPECT_THAT(leader->requests, ElementsAre(1, 2, 4, 3));
  Admit(5);
  clock_.Advance(absl::Seconds(11));
  Admit(6, {.priority = 1});
  for (const uint64_t id : {3, 4}) Output(1, id, "x", Finish::kEos);
  EXPECT_THAT(leader->requests, ElementsAre(1, 2, 4, 3, 5, 6));
}

TEST_F(DispatcherTest, WhatIsLateEndsAtItsReplicaOrInTheQueueAndOthersTakeItsPlace) {
  const auto leader = AddReplica(1);
  const absl::Time deadline = clock_.Now() + absl::Seconds(5);
  const auto running = Admit(1, {.deadline = deadline});
  Admit(2);
  const auto waiting = Admit(3, {.deadline = deadline});
  const auto next = Admit(4, {.deadline = deadline + absl::Seconds(1)});
  Output(1, 1, "ab", Finish::kNotFinished);
  clock_.Advance(absl::Seconds(4));
  dispatcher_.Tick();
  EXPECT_THAT(leader->cancelled, IsEmpty());
  EXPECT_THAT(leader->requests, ElementsAre(1, 2));

  clock_.Advance(absl::Seconds(1));
  dispatcher_.Tick();
  EXPECT_THAT(leader->cancelled, ElementsAre(1));
  EXPECT_THAT(leader->requests, ElementsAre(1, 2, 4));
  EXPECT_EQ(TextOf(*running), "ab");
  EXPECT_THAT(ErrorOf(*waiting),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("the deadline passed")));
  SKEIN_EXPECT_OK(ErrorOf(*next));
  EXPECT_EQ(dispatcher_.counts().queued, 0);
  EXPECT_EQ(dispatcher_.counts().running, 2);
}

TEST_F(DispatcherTest, AmongEqualPrioritiesTheEarlierDeadlineGoesFirst) {
  const auto leader = AddReplica(1);
  const absl::Time now = clock_.Now();
  for (const uint64_t id : {1, 2}) Admit(id);
  Admit(3);
  clock_.Advance(absl::Seconds(1));
  Admit(4, {.deadline = now + absl::Seconds(90)});
  Output(1, 1, "x", Finish::kEos);  // 4 goes, 3 waits
  EXPECT_THAT(leader->requests, ElementsAre(1, 2, 4));
  Admit(5, {.deadline = now + absl::Seconds(60)});
  Output(1, 2, "x", Finish::kEos);
  EXPECT_THAT(leader->requests, ElementsAre(1, 2, 4, 5));
  // A higher priority goes before a deadline, and so does who came long before.
  Admit(6, {.priority = 1});
  Output(1, 4, "x", Finish::kEos);
  EXPECT_THAT(leader->requests, ElementsAre(1, 2, 4, 5, 6));
  clock_.Advance(absl::Seconds(20));
  Admit(7, {.deadline = now + absl::Seconds(50)});
  Output(1, 5, "x", Finish::kEos);
  EXPECT_THAT(leader->requests, ElementsAre(1, 2, 4, 5, 6, 3));
}

TEST_F(DispatcherTest, ARequestTakesItsAgeToItsReplicaAndToTheNext) {
  const auto first = AddReplica(1);
  for (const uint64_t id : {1, 2, 3}) Admit(id);
  clock_.Advance(absl::Seconds(7));
  Output(1, 1, "x", Finish::kEos);
  ASSERT_THAT(first->requests, ElementsAre(1, 2, 3));
  EXPECT_EQ(first->starts[0].waited, absl::ZeroDuration());
  EXPECT_EQ(first->starts[2].waited, absl::Seconds(7));
  Output(1, 3, "y", Finish::kNotFinished);
  clock_.Advance(absl::Seconds(5));
  Down({1});
  const auto second = AddReplica(2);
  ASSERT_THAT(second->requests, ElementsAre(2, 3));
  for (const serving::Request& start : second->starts) EXPECT_EQ(start.waited, absl::Seconds(12));
}

TEST_F(DispatcherTest, APromptGoesToTheReplicaThatHasItsBeginning) {
  const auto first = AddReplica(1, 4);
  const auto second = AddReplica(2, 4);
  const std::vector<int32_t> one(10, 'a'), other(10, 'b');
  Admit(1, {.prompt = one});
  Admit(2, {.prompt = other});  // to the idle one
  for (const uint64_t id : {1, 2}) Output(id, id, "x", Finish::kEos);
  Admit(3, {.prompt = other});
  EXPECT_THAT(second->requests, ElementsAre(2, 3));
  // The 12 tokens that it has left to compute outweigh the 8 of two pages.
  Admit(4, {.prompt = other});
  EXPECT_THAT(first->requests, ElementsAre(1, 4));
  for (const uint64_t id : {3, 4}) Output(id == 3 ? 2 : 1, id, "x", Finish::kEos);
  Admit(5, {.prompt = one});
  EXPECT_THAT(first->requests, ElementsAre(1, 4, 5));
}

TEST_F(DispatcherTest, ADrainWaitsForNoReplicaToCome) {
  AddReplica(1);
  const auto waiting = Admit(1);
  Down({1});
  dispatcher_.StartDrain();
  EXPECT_THAT(ErrorOf(*waiting),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("shutting down"), HasSubstr("job is gone"))));
  EXPECT_EQ(dispatcher_.counts().queued, 0);
}

TEST_F(DispatcherTest, ADrainWaitsForNoReplicaThatARequestFits) {
  AddReplica(1, 2);
  const auto moved = Admit(1, {.n = 2});
  AddReplica(2);
  Down({1});
  EXPECT_EQ(dispatcher_.counts().queued, 1);
  dispatcher_.StartDrain();
  EXPECT_THAT(ErrorOf(*moved), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting")));
  EXPECT_EQ(dispatcher_.counts().queued, 0);
}

TEST_F(DispatcherTest, ADrainGoesOnWithTheReplicasThatAreLeft) {
  AddReplica(1);
  const auto second = AddReplica(2);
  const auto moved = Admit(1);
  dispatcher_.StartDrain();
  Down({1});
  EXPECT_THAT(second->requests, ElementsAre(1));
  Down({2});
  EXPECT_THAT(ErrorOf(*moved), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting")));
  EXPECT_EQ(dispatcher_.counts().running + dispatcher_.counts().queued, 0);
}

TEST_F(DispatcherTest, ADrainRefusesNewRequestsAndFinishesOldOnes) {
  const auto leader = AddReplica(1);
  for (uint64_t id = 1; id <= 3; ++id) Admit(id);
  dispatcher_.StartDrain();
  dispatcher_.StartDrain();
  EXPECT_THAT(serving_, ElementsAre(true, false));
  EXPECT_TRUE(dispatcher_.draining());
  EXPECT_THAT(dispatcher_.Admit(MakeRequest(4)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting down")));
  Output(1, 1, "x", Finish::kEos);
  EXPECT_THAT(leader->requests, ElementsAre(1, 2, 3));
  EXPECT_EQ(dispatcher_.counts().running, 2);
  dispatcher_.FailAll(absl::UnavailableError("too late"));
  EXPECT_THAT(leader->cancelled, ElementsAre(2, 3));
  EXPECT_EQ(dispatcher_.counts().running, 0);
}

}  // namespace
}  // namespace skein::coordinator

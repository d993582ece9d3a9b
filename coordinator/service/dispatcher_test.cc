#include "coordinator/service/dispatcher.h"

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/test_util.h"
#include "coordinator/service/dispatcher_fixture.h"
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

TEST_F(DispatcherTest, ANewRequestThatFitsNoReplicaIsRefused) {
  AddReplica(1);
  EXPECT_THAT(dispatcher_.Admit(MakeRequest(1, {.n = 2})),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("replica 1: it runs 1 sequences at once")));
  EXPECT_EQ(dispatcher_.counts().queued, 0);
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

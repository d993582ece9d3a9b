// Requests of replicas that are lost, and the replicas that they go on with.
#include <memory>
#include <string>
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

using DispatcherMovesTest = DispatcherTest;

TEST_F(DispatcherMovesTest, RequestsOfALostReplicaGoToTheFrontInTheirOrderAndOnFromTheJournal) {
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

TEST_F(DispatcherMovesTest, ReplicasOfOneJobAreLostTogether) {
  AddReplica(1);
  const auto second = AddReplica(2);
  Admit(1);
  Down({1, 2});  // never from one to the other
  EXPECT_THAT(second->requests, IsEmpty());
  EXPECT_EQ(dispatcher_.counts().queued, 1);
  EXPECT_THAT(AddReplica(3)->requests, ElementsAre(1));
}

TEST_F(DispatcherMovesTest, WithoutAReplicaRequestsWaitForOneAndNewOnesAreRefused) {
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

TEST_F(DispatcherMovesTest, WhoeverWaitedTooLongForAReplicaIsToldWhy) {
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

TEST_F(DispatcherMovesTest, AMovedRequestGoesToAReplicaThatItFitsHoweverBusy) {
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

TEST_F(DispatcherMovesTest, AMovedRequestThatFitsNoReplicaWaitsForOneAndOthersPassIt) {
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

TEST_F(DispatcherMovesTest, WhoeverFittedNoReplicaForTooLongIsToldWhy) {
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

TEST_F(DispatcherMovesTest, ARequestThatGetsNoTokenIsGivenUpAfterSomeRetries) {
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

// ---- Replicas that drain ----

TEST_F(DispatcherMovesTest, ADrainingReplicaKeepsWhatItHasAndGetsNothingNew) {
  const auto first = AddReplica(1, /*max_num_seqs=*/2);
  Admit(1);
  const auto second = AddReplica(2, /*max_num_seqs=*/2);
  dispatcher_.OnReplicasDraining({ReplicaId(1)});
  EXPECT_EQ(dispatcher_.Outstanding({ReplicaId(1)}), 1);
  for (uint64_t id = 2; id < 6; ++id) Admit(id);
  EXPECT_THAT(first->requests, ElementsAre(1));
  EXPECT_THAT(first->cancelled, IsEmpty());
  EXPECT_THAT(second->requests, ElementsAre(2, 3, 4, 5));
  EXPECT_TRUE(dispatcher_.serving());
  Output(1, 1, "x", serving::Finish::kEos);
  EXPECT_EQ(dispatcher_.Outstanding({ReplicaId(1)}), 0);
  EXPECT_EQ(dispatcher_.Outstanding({ReplicaId(1), ReplicaId(2)}), 4);
}

TEST_F(DispatcherMovesTest, WhereAllDrainNewRequestsAreRefusedAndOldOnesWait) {
  AddReplica(1);
  Admit(1);
  Admit(2);
  const auto waits = Admit(3);
  dispatcher_.OnReplicasDraining({ReplicaId(1)});
  EXPECT_FALSE(dispatcher_.serving());
  EXPECT_THAT(serving_, ElementsAre(true, false));
  EXPECT_THAT(dispatcher_.Admit(MakeRequest(4)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("is being drained")));
  Output(1, 1, "x", serving::Finish::kEos);
  Output(1, 2, "x", serving::Finish::kEos);
  EXPECT_EQ(dispatcher_.Outstanding({ReplicaId(1)}), 0);  // not given the third
  Down({1});
  const auto next = AddReplica(2);
  EXPECT_THAT(next->requests, ElementsAre(3));
  SKEIN_EXPECT_OK(ErrorOf(*waits));
}

// Another one may come.
TEST_F(DispatcherMovesTest, WhatOnlyADrainingReplicaFitsIsNotTooLarge) {
  AddReplica(1, /*max_num_seqs=*/4);
  AddReplica(2);
  dispatcher_.OnReplicasDraining({ReplicaId(1)});
  EXPECT_THAT(
      dispatcher_.Admit(MakeRequest(1, {.n = 3})),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr("replica 1: it takes no new requests"), HasSubstr("try again"))));
  EXPECT_THAT(dispatcher_.Admit(MakeRequest(2, {.n = 5})),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("fits no replica")));
}

// However often it was moved: nothing has failed.
TEST_F(DispatcherMovesTest, AMoveFromADrainedReplicaIsNoRetry) {
  auto generation = MakeRequest(1);
  for (uint64_t id = 1; id < 8; ++id) {
    const auto replica = AddReplica(id);
    if (id == 1) SKEIN_ASSERT_OK(dispatcher_.Admit(generation));
    EXPECT_THAT(replica->requests, ElementsAre(1));
    dispatcher_.OnReplicasDraining({ReplicaId(id)});
    Down({id}, "it was drained");
  }
  AddReplica(9);
  SKEIN_EXPECT_OK(ErrorOf(*generation));
}

}  // namespace
}  // namespace skein::coordinator

#include "coordinator/service/dispatcher.h"

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "coordinator/service/fake_tokenizer.h"
#include "coordinator/service/replica_choice.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Finish = SequenceOutput::Finish;

class FakeLeader final : public RankLink {
 public:
  void SendPlan(const plan::Plan&) override {}
  void SendStep(StepInput input) override {
    for (const NewRequest& request : input.requests) requests.push_back(request.id);
    for (const uint64_t id : input.cancelled) cancelled.push_back(id);
  }
  void SendShutdown(const std::string&, int) override {}
  void Close(const absl::Status&) override {}

  std::vector<uint64_t> requests;
  std::vector<uint64_t> cancelled;
};

class DispatcherTest : public ::testing::Test {
 protected:
  std::shared_ptr<FakeLeader> AddReplica(uint64_t id, int32_t max_sequences = 1) {
    auto leader = std::make_shared<FakeLeader>();
    dispatcher_.OnReplicaUp({id, absl::StrCat("replica ", id), max_sequences, leader});
    return leader;
  }

  std::shared_ptr<Generation> MakeRequest(uint64_t id, std::vector<std::string> stops = {}) {
    ValidRequest valid;
    valid.request.prompt = {1};
    valid.request.max_tokens = 10;
    valid.stops = std::move(stops);
    return std::make_shared<Generation>(id, absl::StrCat("req-", id), valid, &model_, &clock_,
                                        [] {});
  }

  std::shared_ptr<Generation> Admit(uint64_t id, std::vector<std::string> stops = {}) {
    auto generation = MakeRequest(id, std::move(stops));
    SKEIN_EXPECT_OK(dispatcher_.Admit(generation));
    return generation;
  }

  void Output(uint64_t replica, uint64_t request, const std::string& text, Finish finish) {
    SequenceOutput sequence{.request_id = request, .finish = finish};
    for (const char byte : text) sequence.tokens.push_back({.id = static_cast<uint8_t>(byte)});
    dispatcher_.OnStepOutput(replica, {.sequences = {sequence}});
  }

  // The error that ended the request; OK if none did.
  static absl::Status ErrorOf(Generation& generation) {
    while (const std::optional<Event> event = generation.Next()) {
      if (const auto* error = std::get_if<absl::Status>(&*event)) return *error;
    }
    return absl::OkStatus();
  }

  const ServedModel model_ = MakeFakeModel();
  SimulatedClock clock_;
  std::vector<bool> serving_;
  Dispatcher dispatcher_{
      {.max_queue = 2, .on_serving = [this](bool serving) { serving_.push_back(serving); }}};
};

TEST(ChooseReplicaTest, FewestRequestsThenTokensThenTheFirst) {
  struct Case {
    std::vector<ReplicaView> replicas;
    std::optional<size_t> want;
  };
  const std::vector<Case> cases = {
      {{}, std::nullopt},
      {{{2, 0, 2}}, std::nullopt},
      {{{1, 50, 2}}, 0},
      {{{2, 50, 4}, {1, 90, 4}}, 1},
      {{{1, 50, 4}, {1, 40, 4}}, 1},
      {{{1, 50, 4}, {1, 50, 4}}, 0},
      {{{1, 10, 1}, {3, 90, 4}}, 1},
  };
  for (const Case& c : cases) EXPECT_EQ(ChooseReplica(c.replicas), c.want);
}

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
  dispatcher_.Cancel(3);  // queued
  EXPECT_THAT(leader->cancelled, IsEmpty());
  EXPECT_EQ(dispatcher_.counts().queued, 1);
  dispatcher_.Cancel(1);  // running: 4 takes its place
  EXPECT_THAT(leader->cancelled, ElementsAre(1));
  EXPECT_THAT(leader->requests, ElementsAre(1, 2, 4));
  Output(1, 1, "late", Finish::kNotFinished);
  dispatcher_.Cancel(99);
  EXPECT_EQ(dispatcher_.counts().running, 2);
}

TEST_F(DispatcherTest, AStopStringCancelsAtTheReplica) {
  const auto leader = AddReplica(1);
  Admit(1, {"b"});
  Output(1, 1, "abc", Finish::kNotFinished);
  EXPECT_THAT(leader->cancelled, ElementsAre(1));
  EXPECT_EQ(dispatcher_.counts().running, 0);
  Admit(2, {"b"});
  Output(1, 2, "ab", Finish::kMaxTokens);
  EXPECT_THAT(leader->cancelled, ElementsAre(1));
}

TEST_F(DispatcherTest, ALostReplicaFailsItsRequestsOnly) {
  AddReplica(1);
  const auto second = AddReplica(2);
  const auto one = Admit(1);
  const auto two = Admit(2);
  Admit(3);
  Admit(4);
  const auto queued = Admit(5);
  dispatcher_.OnReplicaDown(1, absl::UnavailableError("rank 0 on node7 is lost"));
  EXPECT_THAT(ErrorOf(*one), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("node7")));
  SKEIN_EXPECT_OK(ErrorOf(*two));
  SKEIN_EXPECT_OK(ErrorOf(*queued));
  EXPECT_TRUE(dispatcher_.serving());
  dispatcher_.OnReplicaDown(2, absl::UnavailableError("rank 1 on node8 is lost"));
  EXPECT_THAT(ErrorOf(*two), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("node8")));
  EXPECT_THAT(ErrorOf(*queued), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("node8")));
  EXPECT_FALSE(dispatcher_.serving());
  EXPECT_THAT(serving_, ElementsAre(true, true, false));
  Output(2, 2, "late", Finish::kNotFinished);
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

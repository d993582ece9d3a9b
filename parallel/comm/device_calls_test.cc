// Calls that a device's streams make: where they go, how they are numbered, told of and given up.
#include "parallel/comm/device_calls.h"

#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/fake_device.h"
#include "parallel/comm/inprocess/inprocess.h"
#include "parallel/comm/operation_tracker.h"

namespace skein::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// Rank 5 of a job, in a group with ranks 4 and 6, who never come.
class DeviceCallsTest : public ::testing::Test {
 protected:
  DeviceCallsTest() : ranks_(MakeInProcessGroup(3, "trio")), rank_(*ranks_[1]) {
    auto transport = std::make_unique<FakeTransport>();
    transport_ = transport.get();
    rank_.Track(tracker_.AddGroup("trio", {4, 5, 6}, 1));
    rank_.UseDevice(std::move(transport), events_);
  }
  absl::Status Sum() { return rank_.AllReduce(view_, stream_); }
  // A graph of so many sums.
  absl::Status Replay(int64_t sums) {
    return rank_.Replay(sums, stream_, [this] {
      ++launches_;
      return absl::OkStatus();
    });
  }
  std::optional<OperationInProgress> Told() {
    tracker_.LookAtDevices();
    return tracker_.Read().operation;
  }

  int handle_ = 0;
  const Stream stream_ = {&handle_};
  float data_[2] = {};
  const View view_ = {data_, DType::kF32, 1, 2};
  OperationTracker tracker_;
  const std::shared_ptr<FakeEvents> events_ = std::make_shared<FakeEvents>();
  std::vector<std::unique_ptr<Communicator>> ranks_;
  Communicator& rank_;
  FakeTransport* transport_ = nullptr;
  int launches_ = 0;
};

TEST_F(DeviceCallsTest, HostAndDeviceCallsAreNumberedTogether) {
  SKEIN_EXPECT_OK(Sum());
  rank_.set_timeout(absl::Milliseconds(1));
  SKEIN_EXPECT_OK(rank_.Send(view_, 2, stream_));
  SKEIN_EXPECT_OK(rank_.Receive(view_, 0, stream_));
  SKEIN_EXPECT_OK(rank_.Send(view_, 2, stream_));
  EXPECT_THAT(transport_->given,
              ElementsAre(Call{Operation::kAllReduce, 0, 1, 8}, Call{Operation::kSend, 2, 1, 8},
                          Call{Operation::kReceive, 0, 1, 8}, Call{Operation::kSend, 2, 2, 8}));
  // The host's own is left to the host's transport, which finds nobody there.
  EXPECT_THAT(rank_.AllReduce(view_, kHostStream),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "ranks 0, 2 never entered all-reduce 2 of 'trio' within 1ms"));
  EXPECT_EQ(transport_->given.size(), 4u);
}

TEST_F(DeviceCallsTest, ACallIsToldOfUntilTheDeviceHasMadeIt) {
  tracker_.BeginStep(9, absl::Seconds(30));
  rank_.set_step(8);
  SKEIN_EXPECT_OK(Sum());
  rank_.set_step(9);
  SKEIN_EXPECT_OK(rank_.Receive(view_, 2, stream_));
  const std::optional<OperationInProgress> sum = Told();
  ASSERT_TRUE(sum.has_value());
  EXPECT_EQ(sum->call.operation, Operation::kAllReduce);
  EXPECT_EQ(sum->call.number, 1);
  EXPECT_THAT(sum->others, ElementsAre(4, 6));
  EXPECT_EQ(sum->step, 8);
  EXPECT_EQ(tracker_.Read().step, 8);
  EXPECT_THAT(tracker_.Read().entered, ElementsAre(Pair("trio", 1)));
  events_->reached = 1;
  const std::optional<OperationInProgress> receive = Told();
  ASSERT_TRUE(receive.has_value());
  EXPECT_EQ(receive->call.operation, Operation::kReceive);
  EXPECT_THAT(receive->others, ElementsAre(6));
  EXPECT_EQ(receive->step, 9);
  events_->reached = 2;
  EXPECT_FALSE(Told().has_value());
  SKEIN_EXPECT_OK(rank_.Check());
}

// A driver may hold whoever asks it, for ever: heartbeats go on, and tell where the rank is.
TEST_F(DeviceCallsTest, WhoTellsOfCallsWaitsForNoDriver) {
  rank_.set_step(9);
  SKEIN_EXPECT_OK(Sum());
  events_->silent = true;
  std::thread looks([this] { tracker_.LookAtDevices(); });
  while (events_->asked == 0) absl::SleepFor(absl::Milliseconds(1));
  const Progress progress = tracker_.Read();
  ASSERT_TRUE(progress.operation.has_value());
  EXPECT_EQ(progress.operation->call.number, 1);
  EXPECT_EQ(progress.step, 9);
  EXPECT_THAT(progress.entered, ElementsAre(Pair("trio", 1)));
  events_->silent = false;
  looks.join();
}

TEST_F(DeviceCallsTest, ACallThatIsNotOverInTimeFails) {
  rank_.set_step(40);
  rank_.set_timeout(absl::Milliseconds(50));
  SKEIN_EXPECT_OK(Sum());
  SKEIN_EXPECT_OK(rank_.Check());
  absl::SleepFor(absl::Milliseconds(60));  // the time that it has
  const absl::Status late = rank_.Check();
  EXPECT_THAT(late, StatusIs(absl::StatusCode::kDeadlineExceeded,
                             "all-reduce 1 of 'trio' (step 40) was not over within 50ms: this "
                             "rank's device waits for rank 7 on c, rank 8 on d"));
  EXPECT_GE(transport_->aborts, 1);
  EXPECT_EQ(rank_.failure(), late);
  EXPECT_EQ(Sum(), late);
  EXPECT_EQ(rank_.Barrier(kHostStream), late);
  EXPECT_EQ(transport_->given.size(), 1u);
}

// What a stream has waits for its turn; its time begins then.
TEST_F(DeviceCallsTest, TimeCountsFromTheEndOfTheCallBefore) {
  rank_.set_timeout(absl::Milliseconds(200));
  SKEIN_EXPECT_OK(Sum());
  SKEIN_EXPECT_OK(rank_.Send(view_, 0, stream_));
  absl::SleepFor(absl::Milliseconds(150));
  events_->reached = 1;
  SKEIN_EXPECT_OK(rank_.Check());
  absl::SleepFor(absl::Milliseconds(100));
  SKEIN_EXPECT_OK(rank_.Check());
  absl::SleepFor(absl::Milliseconds(110));
  EXPECT_THAT(rank_.Check(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "send 1 to rank 0 of 'trio' was not over within 200ms: this rank's device "
                       "waits for rank 7 on c"));
}

TEST_F(DeviceCallsTest, ADeviceHearsOfEachStepBeforeItsFirstSum) {
  SKEIN_EXPECT_OK(Sum());  // as ranks warm up
  EXPECT_TRUE(transport_->steps.empty());
  rank_.set_step(7, 70);
  SKEIN_EXPECT_OK(rank_.Send(view_, 2, stream_));
  EXPECT_TRUE(transport_->steps.empty());
  // In front of the graph, on its stream; what is captured has no step.
  SKEIN_EXPECT_OK(rank_.CaptureAllReduce(view_, stream_));
  EXPECT_TRUE(transport_->steps.empty());
  SKEIN_EXPECT_OK(rank_.Replay(2, stream_, [&] {
    EXPECT_THAT(transport_->steps, ElementsAre(Pair(7, 70u)));
    return absl::OkStatus();
  }));
  SKEIN_EXPECT_OK(Sum());
  EXPECT_EQ(transport_->steps.size(), 1u);
  rank_.set_step(7, 71);  // another micro-batch of it
  SKEIN_EXPECT_OK(Sum());
  SKEIN_EXPECT_OK(Sum());
  EXPECT_THAT(transport_->steps, ElementsAre(Pair(7, 70u), Pair(7, 71u)));
}

TEST_F(DeviceCallsTest, ASumByAKernelOfTheCallersIsNumberedAsOthers) {
  EXPECT_EQ(rank_.PeersOf(view_), nullptr);
  rank_.set_step(3, 30);
  SKEIN_EXPECT_OK(Sum());
  bool given = false;
  SKEIN_EXPECT_OK(rank_.AllReduceBy(view_, stream_, [&] {
    given = true;
    return absl::OkStatus();
  }));
  EXPECT_TRUE(given);
  EXPECT_EQ(transport_->given.size(), 1u);
  EXPECT_EQ(rank_.calls(), 2);
  EXPECT_THAT(tracker_.Read().entered, ElementsAre(Pair("trio", 2)));
  events_->reached = 1;
  EXPECT_EQ(Told()->call.number, 2);
}

TEST_F(DeviceCallsTest, AGraphsSumsAreNumberedAsItIsReplayed) {
  SKEIN_EXPECT_OK(rank_.CaptureAllReduce(view_, stream_));
  SKEIN_EXPECT_OK(rank_.CaptureAllReduce(view_, stream_));
  EXPECT_EQ(rank_.calls(), 0);
  EXPECT_FALSE(Told().has_value());
  EXPECT_EQ(events_->recorded, 0);
  EXPECT_EQ(transport_->given.size(), 2u);

  std::vector<int64_t> seen;
  rank_.set_hooks([&](const Call& call) { seen.push_back(call.number); }, nullptr);
  SKEIN_EXPECT_OK(Sum());
  rank_.set_timeout(absl::ZeroDuration());
  SKEIN_EXPECT_OK(Replay(2));
  SKEIN_EXPECT_OK(Replay(2));
  EXPECT_EQ(launches_, 2);
  EXPECT_THAT(seen, ElementsAre(1, 2, 4));
  EXPECT_EQ(rank_.calls(), 5);
  EXPECT_THAT(tracker_.Read().entered, ElementsAre(Pair("trio", 5)));
  EXPECT_EQ(Told()->call.number, 1);
  events_->reached = 1;
  EXPECT_EQ(Told()->call.number, 2);
  EXPECT_EQ(Told()->call.operation, Operation::kAllReduce);
  absl::SleepFor(absl::Milliseconds(1));
  EXPECT_THAT(rank_.Check(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                      HasSubstr("all-reduce 2 of 'trio', or one behind it up to "
                                                "3, was not over")));
  EXPECT_EQ(Replay(2), rank_.failure());
  EXPECT_EQ(launches_, 2);
}

TEST_F(DeviceCallsTest, WhatTheTransportOrTheDeviceSaysPoisons) {
  transport_->state = absl::UnavailableError("rank 8 on d is lost");
  EXPECT_EQ(rank_.Check(), transport_->state);
  EXPECT_EQ(Sum(), transport_->state);
  EXPECT_GE(transport_->aborts, 1);

  auto other = MakeInProcessGroup(2, "pair");
  other[0]->UseDevice(std::make_unique<FakeTransport>(), events_);
  SKEIN_EXPECT_OK(other[0]->AllReduce(view_, stream_));
  events_->broken = true;
  EXPECT_THAT(other[0]->Check(), StatusIs(absl::StatusCode::kInternal, "the device is broken"));
}

// Others notice an abort. Who is to blame has said so by then.
TEST_F(DeviceCallsTest, AFailureIsToldOnceBeforeOthersCanNotice) {
  std::vector<absl::Status> told;
  rank_.set_on_failure([&](const absl::Status& why) {
    told.push_back(why);
    EXPECT_EQ(transport_->aborts, 0);
  });
  SKEIN_EXPECT_OK(Sum());
  events_->broken = true;
  const absl::Status broken = absl::InternalError("the device is broken");
  EXPECT_EQ(rank_.Check(), broken);
  EXPECT_EQ(Sum(), broken);
  EXPECT_EQ(told, std::vector<absl::Status>{broken});
  EXPECT_EQ(transport_->aborts, 1);
  // What others have told this rank, it need not tell.
  auto pair = MakeInProcessGroup(2, "pair");
  pair[0]->set_on_failure([&](const absl::Status& why) { told.push_back(why); });
  pair[0]->Abort(absl::CancelledError("the leader is gone"));
  EXPECT_FALSE(pair[0]->Barrier(kHostStream).ok());
  EXPECT_EQ(told.size(), 1u);
}

TEST_F(DeviceCallsTest, AnAbortEndsWhatTheDeviceWaitsIn) {
  SKEIN_EXPECT_OK(Sum());
  const absl::Status why = absl::CancelledError("the leader is gone");
  rank_.Abort(why);
  EXPECT_EQ(transport_->aborts, 1);
  events_->reached = 1;  // it has ended, but was not made
  EXPECT_EQ(rank_.Check(), why);
}

TEST_F(DeviceCallsTest, WhatDevicesCannotIsRefused) {
  const auto refused = [](const absl::Status& status) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("of a device's")));
  };
  std::vector<float> all(6);
  refused(rank_.AllGather(view_, {all.data(), DType::kF32, 3, 2}, stream_));
  // A failure of one is the group's.
  const auto device = [this] {
    auto pair = MakeInProcessGroup(2, "pair");
    pair[0]->UseDevice(std::make_unique<FakeTransport>(), events_);
    return std::move(pair[0]);
  };
  refused(device()->Broadcast(view_, 0, stream_));
  refused(device()->Barrier(stream_));
}

TEST_F(DeviceCallsTest, TheOrderOfADevicesSumsIsTheTransports) {
  EXPECT_TRUE(rank_.SumsAsTree(kHostStream));
  EXPECT_FALSE(rank_.SumsAsTree(stream_));
  EXPECT_TRUE(ranks_[0]->SumsAsTree(stream_));
}

// Heartbeats go on when a group is gone.
TEST_F(DeviceCallsTest, TheTrackerOutlivesTheGroup) {
  SKEIN_EXPECT_OK(Sum());
  ranks_.clear();
  EXPECT_EQ(Told()->call.number, 1);
  events_->reached = 1;
  EXPECT_FALSE(Told().has_value());
}

}  // namespace
}  // namespace skein::comm

#include "parallel/comm/communicator.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/device_copies.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/stream.h"
#include "base/test_util.h"
#include "base/view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/inprocess/inprocess.h"

namespace skein::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::vector<std::byte> Message(size_t bytes) { return std::vector<std::byte>(bytes); }

// Three ranks that are 4, 5 and 6 in their job; each has a tracker of its own.
class CommunicatorTest : public ::testing::Test {
 protected:
  CommunicatorTest() {
    auto group = MakeInProcessGroup(3, "trio");
    for (int rank = 0; rank < 3; ++rank) {
      group[rank]->Track(trackers_[rank].AddGroup("trio", {4, 5, 6}, rank));
      ranks_.push_back(std::move(group[rank]));
    }
  }

  // Runs `call` on one rank until the tracker tells of it, and gives what it told. Then lets the
  // other ranks join in by `others`.
  OperationInProgress Watch(int rank, const std::function<void()>& call,
                            const std::function<void()>& others) {
    std::thread caller(call);
    std::optional<OperationInProgress> seen;
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!seen.has_value() && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
      seen = trackers_[rank].Read().operation;
    }
    EXPECT_TRUE(seen.has_value());
    if (seen.has_value()) {
      absl::SleepFor(absl::Milliseconds(20));  // the time that it must tell
      const absl::Duration later = trackers_[rank].Read().operation->elapsed;
      EXPECT_GE(later, seen->elapsed + absl::Milliseconds(20));
      EXPECT_LT(later, absl::Seconds(20));
    }
    others();
    caller.join();
    EXPECT_FALSE(trackers_[rank].Read().operation.has_value());
    return seen.value_or(OperationInProgress());
  }

  OperationTracker trackers_[3];
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

TEST_F(CommunicatorTest, CallsAreSeenWhileTheyLastUnderTheirNumbers) {
  float data[3][6] = {};
  std::byte bytes[3][6] = {};
  const auto span = [&](int rank) { return absl::MakeSpan(data[rank]); };
  struct Case {
    Operation operation;
    std::function<absl::Status(int)> call;
    std::vector<int> callers;  // the first one is watched
    int64_t number;
    std::vector<int> others;
  };
  const auto message = [&](int r) {
    return r == 2 ? ranks_[2]->Receive(HostView(absl::MakeSpan(bytes[2])), 0, kHostStream)
                  : ranks_[0]->Send(HostView(absl::MakeSpan(bytes[0])), 2, kHostStream);
  };
  const std::vector<Case> cases = {
      {Operation::kAllReduce,
       [&](int r) { return ranks_[r]->AllReduce(HostView(span(r)), kHostStream); },
       {1, 0, 2},
       1,
       {4, 6}},
      {Operation::kBarrier,
       [&](int r) { return ranks_[r]->Barrier(kHostStream); },
       {0, 1, 2},
       2,
       {5, 6}},
      {Operation::kReceive, message, {2, 0}, 1, {4}},
      {Operation::kBroadcast,
       [&](int r) {
         return ranks_[r]->Broadcast(HostView(absl::MakeSpan(bytes[r])), 1, kHostStream);
       },
       {2, 0, 1},
       3,
       {4, 5}},
      {Operation::kReceive, message, {2, 0}, 2, {4}},
      {Operation::kAllGather,
       [&](int r) {
         const std::byte in[2] = {};
         return ranks_[r]->AllGather(HostView(in), HostView(absl::MakeSpan(bytes[r])), kHostStream);
       },
       {1, 0, 2},
       4,
       {4, 6}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << OperationName(c.operation) << " " << c.number);
    const auto run = [&](int rank) { SKEIN_EXPECT_OK(c.call(rank)); };
    const OperationInProgress seen = Watch(
        c.callers[0], [&] { run(c.callers[0]); },
        [&] {
          std::vector<std::thread> threads;
          for (size_t i = 1; i < c.callers.size(); ++i) {
            threads.emplace_back([&, i] { run(c.callers[i]); });
          }
          for (std::thread& thread : threads) thread.join();
        });
    EXPECT_EQ(seen.group, "trio");
    EXPECT_EQ(seen.call.operation, c.operation);
    EXPECT_EQ(seen.call.number, c.number);
    EXPECT_EQ(seen.others, c.others);
    if (c.operation == Operation::kReceive) EXPECT_EQ(seen.call.peer, 4);
    if (c.operation == Operation::kBroadcast) EXPECT_EQ(seen.call.peer, 5);
  }
  for (const OperationTracker& tracker : trackers_) {
    EXPECT_THAT(tracker.Read().entered, ElementsAre(Pair("trio", 4)));
  }
}

TEST_F(CommunicatorTest, ACallStandsStillFromItsBeginOrItsLastBeat) {
  constexpr absl::Duration kWhile = absl::Milliseconds(20);
  OperationTracker::Group* const group = trackers_[0].AddGroup("polled", {4, 5}, 0);
  const auto read = [&] { return *trackers_[0].Read().operation; };
  {
    const OperationTracker::Group::Entered entered(group, {.number = 1});
    absl::SleepFor(kWhile);
    EXPECT_GE(read().still, kWhile);
    group->pulse().Beat();
    const OperationInProgress beaten = read();
    EXPECT_GE(beaten.elapsed - beaten.still, kWhile);
  }
  const OperationTracker::Group::Entered entered(group, {.number = 2});
  const OperationInProgress next = read();
  EXPECT_EQ(next.still, next.elapsed);  // the beat was another call's
}

// A graph that is replayed makes no calls on the host.
class FakeDevice final : public DeviceReport {
 public:
  std::optional<Call> InProgress() const override { return call; }
  int64_t entered() const override { return call.has_value() ? call->number : 0; }
  std::optional<int64_t> step() const override { return in_step; }
  std::optional<Call> call;
  std::optional<int64_t> in_step;
};

TEST_F(CommunicatorTest, ADeviceTellsWhichCollectiveItIsIn) {
  OperationTracker tracker;
  OperationTracker::Group* const group = tracker.AddGroup("graph", {4, 5, 6}, 1);
  const auto reporter = std::make_shared<FakeDevice>();
  FakeDevice& device = *reporter;
  group->set_device(reporter);
  EXPECT_FALSE(tracker.Read().operation.has_value());
  const auto read = [&](int64_t number) {
    device.call = {.operation = Operation::kAllReduce, .number = number};
    return *tracker.Read().operation;
  };
  EXPECT_EQ(read(812).elapsed, absl::ZeroDuration());
  absl::SleepFor(absl::Milliseconds(20));  // the time that it must tell
  const OperationInProgress seen = read(812);
  EXPECT_EQ(seen.group, "graph");
  EXPECT_EQ(seen.call.operation, Operation::kAllReduce);
  EXPECT_EQ(seen.call.number, 812);
  EXPECT_THAT(seen.others, ElementsAre(4, 6));
  EXPECT_GE(seen.elapsed, absl::Milliseconds(20));
  EXPECT_EQ(seen.still, absl::ZeroDuration());
  EXPECT_THAT(tracker.Read().entered, ElementsAre(Pair("graph", 812)));
  EXPECT_EQ(read(813).elapsed, absl::ZeroDuration());
  tracker.BeginStep(9, absl::Seconds(30));
  EXPECT_EQ(tracker.Read().step, 9);
  device.in_step = 8;
  EXPECT_EQ(tracker.Read().step, 8);
  {
    const OperationTracker::Group::Entered entered(group, {.number = 814});
    EXPECT_EQ(tracker.Read().operation->call.number, 814);
  }
  device.call.reset();
  EXPECT_FALSE(tracker.Read().operation.has_value());
}

TEST_F(CommunicatorTest, ASendThatWaitsForRoomIsSeen) {
  const std::vector<std::byte> large = Message(size_t{12} << 20);
  SKEIN_ASSERT_OK(ranks_[1]->Send(HostView(large), 0, kHostStream));
  EXPECT_FALSE(trackers_[1].Read().operation.has_value());
  const OperationInProgress seen = Watch(
      1, [&] { SKEIN_EXPECT_OK(ranks_[1]->Send(HostView(large), 0, kHostStream)); },
      [&] {
        std::vector<std::byte> in = Message(large.size());
        for (int i = 0; i < 2; ++i)
          SKEIN_EXPECT_OK(ranks_[0]->Receive(HostView(absl::MakeSpan(in)), 1, kHostStream));
      });
  EXPECT_EQ(seen.call.operation, Operation::kSend);
  EXPECT_EQ(seen.call.number, 2);
  EXPECT_THAT(seen.others, ElementsAre(4));
}

TEST_F(CommunicatorTest, ACallThatFailsIsLeft) {
  ranks_[0]->set_timeout(absl::Milliseconds(1));
  EXPECT_THAT(ranks_[0]->Barrier(kHostStream),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "ranks 1, 2 never entered barrier 1 of 'trio' within 1ms"));
  EXPECT_FALSE(trackers_[0].Read().operation.has_value());
  EXPECT_FALSE(ranks_[0]->Send({}, 7, kHostStream).ok());  // no such rank
  EXPECT_FALSE(trackers_[0].Read().operation.has_value());
}

TEST_F(CommunicatorTest, StepsComeWithTheirDeadline) {
  OperationTracker& tracker = trackers_[0];
  EXPECT_EQ(tracker.Read().step, std::nullopt);
  EXPECT_EQ(tracker.Read().deadline, absl::InfiniteDuration());
  tracker.BeginStep(0, absl::Seconds(30));
  EXPECT_EQ(tracker.Read().step, 0);
  EXPECT_EQ(tracker.Read().deadline, absl::Seconds(30));
  tracker.BeginStep(1, absl::InfiniteDuration());
  EXPECT_EQ(tracker.Read().step, 0);  // is still under way
  EXPECT_EQ(tracker.Read().deadline, absl::InfiniteDuration());
  tracker.EndStep(/*next=*/1);
  EXPECT_EQ(tracker.Read().step, 1);
  tracker.EndStep();
  EXPECT_EQ(tracker.Read().step, std::nullopt);
}

// Calls of a few microseconds follow each other while another thread looks: none is ever said to
// last longer than all of them.
TEST_F(CommunicatorTest, NoCallIsTakenForAnOlderOne) {
  constexpr int kCalls = 2000;
  std::atomic<bool> done = false;
  absl::Duration longest;
  int64_t last = 0;
  std::thread reader([&] {
    while (!done) {
      const Progress progress = trackers_[0].Read();
      EXPECT_GE(progress.entered.at("trio"), last);
      last = progress.entered.at("trio");
      if (progress.operation.has_value()) {
        longest = std::max(longest, progress.operation->elapsed);
        EXPECT_GE(progress.operation->elapsed, absl::ZeroDuration());
      }
    }
  });
  absl::Duration slowest;
  std::vector<std::thread> others;
  for (int rank = 1; rank < 3; ++rank) {
    others.emplace_back([this, rank] {
      for (int i = 0; i < kCalls; ++i) SKEIN_EXPECT_OK(ranks_[rank]->Barrier(kHostStream));
    });
  }
  for (int i = 0; i < kCalls; ++i) {
    const absl::Time begin = absl::Now();
    SKEIN_EXPECT_OK(ranks_[0]->Barrier(kHostStream));
    slowest = std::max(slowest, absl::Now() - begin);
  }
  done = true;
  reader.join();
  for (std::thread& thread : others) thread.join();
  EXPECT_EQ(trackers_[0].Read().entered.at("trio"), kCalls);
  EXPECT_LE(longest, slowest + absl::Milliseconds(1));  // of two clocks
}

// A device whose memory holds every byte inverted, and notes on which stream it was used.
class InvertedDevice : public DeviceCopies {
 public:
  static std::vector<std::byte> Inverted(std::vector<std::byte> bytes) {
    for (std::byte& byte : bytes) byte = ~byte;
    return bytes;
  }
  absl::StatusOr<absl::Span<std::byte>> Buffer(int64_t bytes) override {
    if (bytes > kMost) return absl::ResourceExhaustedError("no buffer");
    buffer_.resize(bytes);
    return absl::MakeSpan(buffer_);
  }
  absl::Status ToHost(ConstView from, std::byte* to, Stream stream,
                      KeepWaiting keep_waiting) override {
    while (stuck) {
      ++looks;
      SKEIN_RETURN_IF_ERROR(keep_waiting());
    }
    return Copy(static_cast<const std::byte*>(from.data), from.bytes(), to, stream);
  }
  absl::Status ToDevice(const std::byte* from, View to, Stream stream, KeepWaiting) override {
    return Copy(from, to.bytes(), static_cast<std::byte*>(to.data), stream);
  }

  static constexpr int64_t kMost = 1000;
  std::vector<void*> streams;
  bool stuck = false;  // no copy from it ends
  std::atomic<int> looks = 0;

 private:
  absl::Status Copy(const std::byte* from, int64_t bytes, std::byte* to, Stream stream) {
    for (int64_t i = 0; i < bytes; ++i) to[i] = ~from[i];
    streams.push_back(stream.handle);
    return absl::OkStatus();
  }
  std::vector<std::byte> buffer_;
};

// Calls `body` on both ranks of a pair, whose memory is a device's.
void OnDevices(const std::function<void(Communicator&, InvertedDevice&)>& body) {
  auto group = MakeInProcessGroup(2, "pair");
  std::vector<std::thread> threads;
  for (auto& rank : group) {
    threads.emplace_back([&body, &rank] {
      InvertedDevice device;
      rank->StageThrough(&device);
      body(*rank, device);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(StageThroughTest, ViewsOfADeviceGoByWayOfTheHost) {
  int handle = 0;
  const Stream stream = {&handle};
  OnDevices([&](Communicator& rank, InvertedDevice& device) {
    // BF16 1, 2, 3 and 256 are summed as floats: 1 + 256 has more bits than BF16.
    const auto number = [](float value) { return static_cast<uint16_t>(~FloatToBf16(value)); };
    std::vector<uint16_t> sums = {number(1), number(rank.rank() == 0 ? 256.0f : 1.0f)};
    SKEIN_EXPECT_OK(rank.AllReduce({sums.data(), DType::kBF16, 1, 2}, stream));
    EXPECT_THAT(sums, ElementsAre(number(2), number(257)));
    EXPECT_EQ(number(257), number(256));  // rounded behind the sum, to even
    std::vector<float> floats = {1.5f};
    auto* const bytes = reinterpret_cast<std::byte*>(floats.data());
    for (int i = 0; i < 4; ++i) bytes[i] = ~bytes[i];
    SKEIN_EXPECT_OK(rank.AllReduce({floats.data(), DType::kF32, 1, 1}, stream));
    for (int i = 0; i < 4; ++i) bytes[i] = ~bytes[i];
    EXPECT_EQ(floats[0], 3.0f);

    std::vector<std::byte> message = InvertedDevice::Inverted({std::byte{1}, std::byte{2}});
    const View view = {message.data(), DType::kU8, 1, 2};
    if (rank.rank() == 0) {
      SKEIN_EXPECT_OK(rank.Send(view, 1, stream));
      SKEIN_EXPECT_OK(rank.Send(HostView(absl::MakeSpan(message)), 1, kHostStream));
    } else {
      message = {};
      message.resize(2);
      const View here = {message.data(), DType::kU8, 1, 2};
      SKEIN_EXPECT_OK(rank.Receive(here, 0, stream));
      EXPECT_EQ(message, InvertedDevice::Inverted({std::byte{1}, std::byte{2}}));
      // The host's own memory is left to the transport.
      SKEIN_EXPECT_OK(rank.Receive(here, 0, kHostStream));
      EXPECT_EQ(message, InvertedDevice::Inverted({std::byte{1}, std::byte{2}}));
    }
    for (const void* used : device.streams) EXPECT_EQ(used, &handle);
    EXPECT_EQ(device.streams.size(), 5u);
  });
}

TEST(StageThroughTest, ABroadcastReadsTheRootsDeviceAlone) {
  int handle = 0;
  const Stream stream = {&handle};
  OnDevices([&](Communicator& rank, InvertedDevice& device) {
    std::vector<std::byte> message(2, rank.rank() == 1 ? std::byte{7} : std::byte{9});
    SKEIN_EXPECT_OK(rank.Broadcast({message.data(), DType::kU8, 1, 2}, 1, stream));
    EXPECT_THAT(message, ElementsAre(std::byte{7}, std::byte{7}));
    EXPECT_EQ(device.streams.size(), 1u);
  });
}

TEST(StageThroughTest, AnAllGatherOfADeviceIsRefused) {
  int handle = 0;
  auto group = MakeInProcessGroup(2, "pair");
  InvertedDevice device;
  group[0]->StageThrough(&device);
  std::vector<std::byte> bytes(4);
  EXPECT_THAT(group[0]->AllGather({bytes.data(), DType::kU8, 1, 2},
                                  {bytes.data(), DType::kU8, 2, 2}, Stream{&handle}),
              StatusIs(absl::StatusCode::kUnimplemented, testing::HasSubstr("all-gather")));
}

TEST(StageThroughTest, AWaitForTheDeviceHearsAbort) {
  int handle = 0;
  auto group = MakeInProcessGroup(2, "pair");
  InvertedDevice device;
  device.stuck = true;
  group[0]->StageThrough(&device);
  std::vector<float> data(4);
  std::thread other([&] {
    while (device.looks == 0) std::this_thread::yield();
    group[0]->Abort(absl::UnavailableError("a peer is gone"));
  });
  EXPECT_THAT(group[0]->AllReduce({data.data(), DType::kF32, 1, 4}, Stream{&handle}),
              StatusIs(absl::StatusCode::kUnavailable, testing::HasSubstr("a peer is gone")));
  other.join();
  // Nothing is waited for any more.
  const int looks = device.looks;
  EXPECT_THAT(group[0]->Send({data.data(), DType::kF32, 1, 4}, 1, Stream{&handle}),
              StatusIs(absl::StatusCode::kUnavailable, testing::HasSubstr("a peer is gone")));
  EXPECT_EQ(device.looks, looks);
}

TEST(StageThroughTest, AWaitForTheDeviceHasADeadline) {
  int handle = 0;
  auto group = MakeInProcessGroup(2, "pair");
  InvertedDevice device;
  device.stuck = true;
  group[1]->StageThrough(&device);
  group[1]->set_timeout(absl::Milliseconds(20));
  std::vector<float> data(4);
  EXPECT_THAT(group[1]->Send({data.data(), DType::kF32, 1, 4}, 0, Stream{&handle}),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       testing::HasSubstr("pair: rank 1 waited for its own device for 20ms")));
}

// A device that waits for another group's message waits in vain when that group has failed.
TEST(StageThroughTest, AWaitForTheDeviceHearsWhatThatWaitsFor) {
  int handle = 0;
  auto group = MakeInProcessGroup(2, "pair");
  InvertedDevice device;
  device.stuck = true;
  int checks = 0;
  group[0]->StageThrough(&device, [&] {
    return ++checks < 3 ? absl::OkStatus() : absl::UnavailableError("the hop's peer is gone");
  });
  group[0]->set_timeout(absl::Seconds(60));
  std::vector<float> data(4);
  EXPECT_THAT(
      group[0]->AllReduce({data.data(), DType::kF32, 1, 4}, Stream{&handle}),
      StatusIs(absl::StatusCode::kUnavailable, testing::HasSubstr("the hop's peer is gone")));
  EXPECT_EQ(checks, 3);
  EXPECT_THAT(group[0]->failure(), StatusIs(absl::StatusCode::kUnavailable, testing::_));
}

TEST(StageThroughTest, AnErrorOfTheDevicePoisons) {
  int handle = 0;
  const Stream stream = {&handle};
  auto group = MakeInProcessGroup(2, "pair");
  InvertedDevice device;
  group[0]->StageThrough(&device);
  std::vector<std::byte> message(InvertedDevice::kMost + 1);
  const View view = {message.data(), DType::kU8, 1, static_cast<int64_t>(message.size())};
  EXPECT_THAT(group[0]->Send(view, 1, stream),
              StatusIs(absl::StatusCode::kResourceExhausted, testing::HasSubstr("no buffer")));
  EXPECT_FALSE(group[0]->Barrier(kHostStream).ok());
}

}  // namespace
}  // namespace skein::comm

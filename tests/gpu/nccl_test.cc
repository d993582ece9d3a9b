// Groups over NCCL and peer memory, of two processes. Each has a GPU of its own where there are
// two; else they share one, tell NCCL that they are two hosts, and talk over sockets: slowly, since
// they take turns.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/device_events.h"
#include "base/device_timer.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_events.h"
#include "kernels/cuda/cuda_peer_sums.h"
#include "kernels/cuda/cuda_timer.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/resources.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/control/fork_group.h"
#include "parallel/comm/nccl/nccl_transport.h"
#include "parallel/comm/operation_tracker.h"
#include "parallel/comm/p2p/crossover.h"
#include "parallel/comm/p2p/peer_transport.h"
#include "parallel/comm/tree_sum.h"

namespace skein::comm {
namespace {

using kernels::cuda::DeviceArray;
using kernels::cuda::DeviceBytes;
using kernels::cuda::OwnedGraph;
using kernels::cuda::OwnedStream;
using ::testing::HasSubstr;

constexpr absl::Duration kMeet = absl::Seconds(30);
constexpr absl::Duration kSoon = absl::Seconds(10);
constexpr unsigned kCaseSeconds = 60;

// ---- Processes ----

// Runs `body` in a process of its own, since no process can fork once it has used CUDA, and gives
// its exit status; -1 where it crashed.
int RunApart(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kCaseSeconds);
    const int code = body();
    std::fflush(nullptr);
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int CountGpus() {
  return RunApart([] {
    const absl::StatusOr<std::vector<std::string>> gpus = kernels::ListCudaDevices();
    if (!gpus.ok()) std::printf("%s\n", gpus.status().ToString().c_str());
    return gpus.ok() ? static_cast<int>(gpus->size()) : 255;
  });
}

// One of two ranks, in its own process.
struct Rank {
  Communicator& host;  // over which groups meet
  const int device;
  const pid_t peer;  // rank 1's process, for rank 0

  int number() const { return host.rank(); }
};

void UseNetwork(int number) {
  setenv("NCCL_HOSTID", number == 0 ? "a" : "b", 1);
  setenv("NCCL_P2P_DISABLE", "1", 1);
  setenv("NCCL_SHM_DISABLE", "1", 1);
  setenv("NCCL_NET", "Socket", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
}

// A process that forks rank 1 and is rank 0. Its status is 0 if both are well.
int BeRanks(const std::function<void(Rank&)>& body, int gpus, bool network) {
  std::vector<pid_t> children;
  const std::unique_ptr<Communicator> host = ForkGroup::Fork(2, 0, &children);
  const int number = host->rank();
  alarm(kCaseSeconds);
  for (const auto& [name, value] : NcclEnvironment()) setenv(name, value, 1);
  if (gpus == 1 || network) UseNetwork(number);
  Rank rank = {.host = *host, .device = gpus == 1 ? 0 : number, .peer = children[1]};
  SKEIN_EXPECT_OK((*kernels::MakeCudaEvents(rank.device))->Select());
  body(rank);
  if (number == 0) {
    int status = 0;
    waitpid(rank.peer, &status, 0);
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;  // by a case
    EXPECT_TRUE(killed || status == 0) << "rank 1 ended with status " << status;
  }
  std::fflush(nullptr);
  // Threads may still abort.
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

// Runs `body` as both ranks. `network`: over sockets, though each may have a GPU.
void OnRanks(const std::function<void(Rank&)>& body, bool network = false) {
  const int gpus = CountGpus();
  ASSERT_GE(gpus, 0);
  ASSERT_LT(gpus, 255);
  if (gpus == 0) GTEST_SKIP() << "no GPU";
  EXPECT_EQ(RunApart([&] { return BeRanks(body, gpus, network); }), 0);
}

// ---- Groups ----

// A group whose calls are all made by devices.
class Group final : public Communicator {
 public:
  // How small sums go over memory, which processes share: all that can, or those that are measured.
  enum class Peers : uint8_t { kNone, kAll, kMeasured };

  // A call of both ranks.
  Group(Rank& rank, std::string name, Peers peers = Peers::kNone)
      : Communicator(std::move(name), rank.number(), 2) {
    Track(tracker.AddGroup(this->name(), {0, 1}, rank.number()));
    events = *kernels::MakeCudaEvents(rank.device);
    auto transport = MakeNcclTransport(
        rank.host, absl::StrCat("rank ", rank.number(), " on host-", rank.number()), events, kMeet);
    kernels::cuda::Require(transport.status());
    if (peers != Peers::kNone) {
      std::unique_ptr<DeviceTimer> timer;
      if (peers == Peers::kMeasured) timer = *kernels::MakeCudaTimer(rank.device);
      auto made = MakePeerTransport(
          rank.host,
          {.self = absl::StrCat("rank ", rank.number(), " on host-", rank.number()),
           .host = "one host",
           .sums = kernels::MakeCudaPeerSums(rank.device, rank.number(), 2),
           .timer = timer.get(),
           .timeout = kSoon},
          *std::move(transport));
      kernels::cuda::Require(made.status());
      most_peer_bytes = made->most_bytes;
      times = made->times;
      if (peers == Peers::kAll) EXPECT_EQ(made->why_not, "");
      transport = std::move(made->transport);
    }
    UseDevice(*std::move(transport), events);
    stream = *OwnedStream::Create();
    set_timeout(kSoon);
  }

  // Waits for the stream as a back end does.
  absl::Status Finish() {
    SKEIN_ASSIGN_OR_RETURN(const int event, events->Record(stream.get()));
    while (true) {
      SKEIN_ASSIGN_OR_RETURN(const bool done, events->Done(event));
      SKEIN_RETURN_IF_ERROR(Check());
      if (done) return absl::OkStatus();
      absl::SleepFor(absl::Microseconds(100));
    }
  }
  // Whether the device comes to the end of the stream, whatever has become of its calls.
  bool Ends() {
    const absl::Time deadline = absl::Now() + kSoon;
    const absl::StatusOr<int> event = events->Record(stream.get());
    while (event.ok() && absl::Now() < deadline) {
      const absl::StatusOr<bool> done = events->Done(*event);
      if (!done.ok()) return false;
      if (*done) return true;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return false;
  }

  OperationTracker tracker;
  std::shared_ptr<DeviceEvents> events;
  OwnedStream stream;
  int64_t most_peer_bytes = 0;
  std::vector<SumTimes> times;

 private:
  static absl::Status None() { return absl::UnimplementedError("of the device alone"); }
  bool DoSumsAsTree() const override { return true; }
  absl::Status DoAllReduce(const Call&, View, Stream) override { return None(); }
  absl::Status DoAllGather(const Call&, ConstView, View, Stream) override { return None(); }
  absl::Status DoBroadcast(const Call&, View, Stream) override { return None(); }
  absl::Status DoBarrier(const Call&, Stream) override { return None(); }
  absl::Status DoSend(const Call&, ConstView, Stream) override { return None(); }
  absl::Status DoReceive(const Call&, View, Stream) override { return None(); }
};

// What a rank has in a dtype: of both signs and many magnitudes.
std::vector<float> Input(int rank, int64_t count, DType dtype) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    const auto mixed = static_cast<uint32_t>(i * 2 + rank + 1) * 2654435761u;
    const float fraction = static_cast<float>(mixed >> 8) / 0x1000000 - 0.5f;
    values[i] = std::ldexp(fraction, static_cast<int>(mixed & 15) - 8);
  }
  return kernels::cuda::Decoded(dtype, kernels::cuda::Encoded(dtype, values));
}

enum class Way { kDirect, kNetwork, kPeers };
std::string WayName(const testing::TestParamInfo<Way>& way) {
  constexpr const char* kNames[] = {"Direct", "Network", "Peers"};
  return kNames[static_cast<int>(way.param)];
}
class Sums : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, Sums, testing::Values(Way::kDirect, Way::kNetwork, Way::kPeers),
                         WayName);

// Two floats have one sum, which is rounded once: by up to 2^-8 of it to BF16, by 2^-11 to F16,
// whose least numbers are 2^-24 apart.
TEST_P(Sums, AreThoseOfTheHost) {
  OnRanks(
      [](Rank& rank) {
        Group group(rank, "tp",
                    GetParam() == Way::kPeers ? Group::Peers::kAll : Group::Peers::kNone);
        EXPECT_FALSE(group.SumsAsTree(group.stream.get()));
        for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
          for (const int64_t count : {1, 3, 256, 257, 4096, 150'001, 600'000}) {
            SCOPED_TRACE(testing::Message() << count << " of " << std::string(DTypeName(dtype)));
            const std::vector<float> inputs[] = {Input(0, count, dtype), Input(1, count, dtype)};
            const float* const both[] = {inputs[0].data(), inputs[1].data()};
            std::vector<float> want(count);
            TreeSum(both, count, want.data());
            const DeviceBytes data = kernels::cuda::Encoded(dtype, inputs[rank.number()]);
            SKEIN_ASSERT_OK(group.AllReduce({data.data(), dtype, 1, count}, group.stream.get()));
            SKEIN_ASSERT_OK(group.Finish());
            const std::vector<float> got = kernels::cuda::Decoded(dtype, data);
            for (int64_t i = 0; i < count; ++i) {
              const float most = dtype == DType::kF32 ? 0.0f
                                 : dtype == DType::kBF16
                                     ? std::ldexp(std::abs(want[i]), -8)
                                     : std::ldexp(std::abs(want[i]), -11) + 0x1p-25f;
              ASSERT_LE(std::abs(got[i] - want[i]), most) << i << ": " << got[i];
            }
          }
        }
        EXPECT_FALSE(group.tracker.Read().operation.has_value());
        EXPECT_EQ(group.tracker.Read().entered.at("tp"), 21);
      },
      GetParam() == Way::kNetwork);
}

// Each has a stream, and the ranks' hosts come to them in unlike orders.
TEST(NcclTest, GroupsOfOneRankDoNotWaitForEachOther) {
  OnRanks([](Rank& rank) {
    Group tp(rank, "tp");
    Group hop(rank, "hop 0");
    constexpr int kRounds = 8;
    constexpr int64_t kCount = 5000;
    const DeviceArray<float> sums(std::vector<float>(kCount, 1.0f));
    std::vector<float> number(kCount);
    for (int round = 0; round < kRounds; ++round) {
      for (int64_t i = 0; i < kCount; ++i) number[i] = static_cast<float>(round * 7 + i);
      const DeviceArray<float> activations(rank.number() == 0 ? number
                                                              : std::vector<float>(kCount));
      const View view = {activations.data(), DType::kF32, 10, kCount / 10};
      const auto sum = [&] {
        SKEIN_ASSERT_OK(tp.AllReduce({sums.data(), DType::kF32, 1, kCount}, tp.stream.get()));
      };
      if (rank.number() == 0) {
        sum();
        SKEIN_ASSERT_OK(hop.Send(view, 1, hop.stream.get()));
      } else {
        SKEIN_ASSERT_OK(hop.Receive(view, 0, hop.stream.get()));
        sum();
      }
      SKEIN_ASSERT_OK(hop.Finish());
      SKEIN_ASSERT_OK(tp.Finish());
      EXPECT_EQ(kernels::cuda::Decoded(DType::kF32, activations), number);
    }
    const std::vector<float> got = kernels::cuda::Decoded(DType::kF32, sums);
    EXPECT_EQ(got[kCount - 1], std::ldexp(1.0f, kRounds));
  });
}

// A graph of two sums, captured as a back end captures.
OwnedGraph CaptureTwo(Group& group, View view) {
  // Once for nobody.
  SKEIN_EXPECT_OK(group.AllReduce(view, group.stream.get()));
  SKEIN_EXPECT_OK(group.Finish());
  absl::StatusOr<OwnedGraph> graph = OwnedGraph::Capture(group.stream.get(), [&]() -> absl::Status {
    SKEIN_RETURN_IF_ERROR(group.CaptureAllReduce(view, group.stream.get()));
    return group.CaptureAllReduce(view, group.stream.get());
  });
  kernels::cuda::Require(graph.status());
  return *std::move(graph);
}

void ExpectReplays(Rank& rank, Group::Peers peers) {
  Group group(rank, "tp", peers);
  constexpr int64_t kCount = 1024;
  DeviceArray<float> data(std::vector<float>(kCount, 1.0f));
  const View view = {data.data(), DType::kF32, 1, kCount};
  const OwnedGraph graph = CaptureTwo(group, view);
  EXPECT_EQ(group.calls(), 1);
  const std::vector<float> input = Input(rank.number(), kCount, DType::kF32);
  data.Upload(input.data(), data.bytes());
  for (int replay = 0; replay < 2; ++replay) {
    SKEIN_ASSERT_OK(
        group.Replay(2, group.stream.get(), [&] { return graph.Launch(group.stream.get()); }));
  }
  SKEIN_ASSERT_OK(group.Finish());
  EXPECT_EQ(group.calls(), 5);
  const std::vector<float> got = kernels::cuda::Decoded(DType::kF32, data);
  const std::vector<float> inputs[] = {Input(0, kCount, DType::kF32),
                                       Input(1, kCount, DType::kF32)};
  // The first sum adds both; each of three more doubles it.
  for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(got[i], 8 * (inputs[0][i] + inputs[1][i])) << i;
}

TEST(NcclTest, SumsInAGraphAreMadeAtEachReplay) {
  OnRanks([](Rank& rank) { ExpectReplays(rank, Group::Peers::kNone); });
}
TEST(PeersTest, SumsInAGraphAreMadeAtEachReplay) {
  OnRanks([](Rank& rank) { ExpectReplays(rank, Group::Peers::kAll); });
}
TEST(PeersTest, AllRanksTakeOneMeasuredLimit) {
  OnRanks([](Rank& rank) {
    const absl::Time begin = absl::Now();
    Group group(rank, "tp", Group::Peers::kMeasured);
    if (rank.number() == 0) {
      std::printf("up to %lld bytes go over memory; measured and met in %s: %s\n",
                  static_cast<long long>(group.most_peer_bytes),
                  absl::FormatDuration(absl::Now() - begin).c_str(),
                  DescribeTimes(group.times).c_str());
    }
    ASSERT_EQ(group.times.size(), 8u);
    for (const SumTimes& at : group.times) {
      EXPECT_GT(at.over_memory, 0) << at.bytes;
      EXPECT_GT(at.over_rest, 0) << at.bytes;
    }
    int64_t limits[2] = {};
    SKEIN_ASSERT_OK(rank.host.AllGather({&group.most_peer_bytes, DType::kU8, 1, 8},
                                        {limits, DType::kU8, 2, 8}, kHostStream));
    EXPECT_EQ(limits[0], limits[1]);
    // Sums are right afterwards, on both sides of it.
    for (const int64_t count : {1024, 400'000}) {
      const DeviceArray<float> data(std::vector<float>(count, 1.0f + rank.number()));
      SKEIN_ASSERT_OK(group.AllReduce({data.data(), DType::kF32, 1, count}, group.stream.get()));
      SKEIN_ASSERT_OK(group.Finish());
      EXPECT_EQ(kernels::cuda::Decoded(DType::kF32, data), std::vector<float>(count, 3.0f));
    }
  });
}

// ---- Ranks that do not come, or leave ----

// Never ready to meet.
class Sleeper final : public DeviceEvents {
 public:
  absl::Status Select() override {
    absl::SleepFor(absl::Minutes(1));
    return absl::OkStatus();
  }
  absl::StatusOr<int> Record(Stream) override { return 0; }
  absl::StatusOr<bool> Done(int) override { return false; }
};

TEST(NcclTest, ARankThatNeverComesIsNamedByTheDeadline) {
  OnRanks([](Rank& rank) {
    if (rank.number() == 1) {
      MakeNcclTransport(rank.host, "rank 1 on host-1", std::make_shared<Sleeper>(), kMeet)
          .status()
          .IgnoreError();
      return;
    }
    const absl::Time begin = absl::Now();
    EXPECT_THAT(MakeNcclTransport(rank.host, "rank 0 on host-0",
                                  *kernels::MakeCudaEvents(rank.device), absl::Seconds(2)),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         HasSubstr("with rank 1 on host-1, was not over within 2s")));
    EXPECT_LT(absl::Now() - begin, kSoon);
    kill(rank.peer, SIGKILL);
  });
}

// What rank 0 sees of a rank that does not come to its third sum, which a graph makes where
// `in_graph`.
void ExpectLoss(Group& group, bool in_graph, absl::StatusCode code, const std::string& text) {
  const DeviceArray<float> data(std::vector<float>(1024, 1.0f));
  const View view = {data.data(), DType::kF32, 1, 1024};
  OwnedGraph graph;
  if (in_graph) graph = CaptureTwo(group, view);
  if (group.rank() == 1) {
    // Not at once: the other shall wait in it.
    absl::SleepFor(absl::Milliseconds(500));
    return;
  }
  group.set_step(7, 0x46);
  group.set_timeout(absl::Seconds(2));
  SKEIN_ASSERT_OK(in_graph ? group.Replay(2, group.stream.get(),
                                          [&] { return graph.Launch(group.stream.get()); })
                           : group.AllReduce(view, group.stream.get()));
  absl::SleepFor(absl::Milliseconds(200));
  const Progress seen = group.tracker.Read();
  ASSERT_TRUE(seen.operation.has_value());
  EXPECT_EQ(seen.operation->call.number, group.calls() - (in_graph ? 1 : 0));
  EXPECT_EQ(seen.operation->call.operation, Operation::kAllReduce);
  EXPECT_EQ(seen.step, 7);
  const absl::Status lost = group.Finish();
  EXPECT_TRUE(lost.code() == code || absl::IsDeadlineExceeded(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr(text));
  std::printf("%s\n", lost.ToString().c_str());
  const absl::Time begin = absl::Now();
  EXPECT_TRUE(group.Ends());
  std::printf("the stream ended after %s\n", absl::FormatDuration(absl::Now() - begin).c_str());
  EXPECT_EQ(group.AllReduce(view, group.stream.get()), lost);
}

// A peer's end is told by the network at once, and otherwise by the deadline.
TEST(NcclTest, AKilledRankIsNamedAndNoKernelSpinsOn) {
  OnRanks([](Rank& rank) {
    Group group(rank, "tp");
    ExpectLoss(group, /*in_graph=*/false, absl::StatusCode::kUnavailable, "rank 1 on host-1");
    if (rank.number() == 1) kill(getpid(), SIGKILL);
  });
}

void ExpectStuckRankIsNamed(Rank& rank, Group::Peers peers) {
  Group group(rank, "tp", peers);
  // Memory tells in which of them.
  const char* const sum =
      peers == Group::Peers::kAll ? " in sum 1 of step 7 (4096 bytes of F32, order 00000046)" : "";
  ExpectLoss(group, /*in_graph=*/true, absl::StatusCode::kDeadlineExceeded,
             absl::StrCat("all-reduce 2 of 'tp' (step 7), or one behind it up to 3, was not over "
                          "within 2s: this rank's device waits for rank 1 on host-1",
                          sum));
  if (rank.number() == 1) absl::SleepFor(kSoon);  // it is there, and does nothing
  kill(rank.number() == 0 ? rank.peer : getpid(), SIGKILL);
}

TEST(NcclTest, ARankThatNeverEntersAGraphsSumIsNamedAndNoKernelSpinsOn) {
  OnRanks([](Rank& rank) { ExpectStuckRankIsNamed(rank, Group::Peers::kNone); });
}
TEST(PeersTest, ARankThatNeverEntersAGraphsSumIsNamedAndNoKernelSpinsOn) {
  OnRanks([](Rank& rank) { ExpectStuckRankIsNamed(rank, Group::Peers::kAll); });
}

// One has another order of the step; both find out in the step's first sum, and no kernel spins on.
TEST(PeersTest, RanksThatFollowUnlikeOrdersAreNamed) {
  OnRanks([](Rank& rank) {
    Group group(rank, "tp", Group::Peers::kAll);
    const DeviceArray<float> data(std::vector<float>(1024, 1.0f));
    const OwnedGraph graph = CaptureTwo(group, {data.data(), DType::kF32, 1, 1024});
    group.set_step(7, rank.number() == 0 ? 0x70 : 0x71);
    SKEIN_ASSERT_OK(
        group.Replay(2, group.stream.get(), [&] { return graph.Launch(group.stream.get()); }));
    const absl::Status unlike = group.Finish();
    const int other = 1 - rank.number();
    EXPECT_THAT(
        unlike,
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 absl::StrCat("rank ", other, " on host-", other,
                              " makes sum 1 of step 7 (4096 bytes of F32, order 0000007", other,
                              "), where this rank makes sum 1 of step 7 (4096 bytes "
                              "of F32, order 0000007",
                              rank.number(), "): they follow unlike orders")));
    EXPECT_TRUE(group.Ends());
  });
}

}  // namespace
}  // namespace skein::comm

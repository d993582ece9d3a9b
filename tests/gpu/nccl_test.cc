// Groups of two processes over NCCL, and what goes over peer memory alike.
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/device_events.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_events.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/resources.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/nccl/nccl_transport.h"
#include "parallel/comm/tree_sum.h"
#include "tests/gpu/two_ranks.h"

namespace skein::comm {
namespace {

using kernels::cuda::DeviceArray;
using kernels::cuda::DeviceBytes;
using kernels::cuda::OwnedGraph;
using ::testing::HasSubstr;

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
  group.tracker.LookAtDevices();
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

}  // namespace
}  // namespace skein::comm

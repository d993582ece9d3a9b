// Which sums go over memory, and that all ranks do alike.
#include "parallel/comm/p2p/peer_transport.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/fake_device.h"
#include "parallel/comm/inprocess/inprocess.h"

namespace skein {
struct PeerMemory {};  // no kernel takes it here
}  // namespace skein

namespace skein::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kKiB = 1024;

// Takes up to 64 KiB.
class FakeSums final : public PeerSums {
 public:
  explicit FakeSums(int number) : number_(number) {}
  std::string handle() const override { return absl::StrCat("memory ", number_); }
  absl::Status Open(absl::Span<const std::string> handles) override {
    opened.assign(handles.begin(), handles.end());
    return open;
  }
  void Close() override { ++closed; }
  int64_t most_bytes() const override { return 64 * kKiB; }
  int64_t most_one_shot_bytes() const override { return 64 * kKiB; }
  void set_one_shot_bytes(int64_t bytes) override { one_shot_bytes = bytes; }
  bool Takes(const View& data) const override { return data.bytes() <= most_bytes(); }
  int64_t memory_bytes() const override { return 0; }
  absl::Status CopyToNext(Stream) override { return absl::UnimplementedError("no test copies"); }
  absl::Status Sum(View data, Stream, Shots shots) override {
    ++sums;
    last_bytes = data.bytes();
    last_shots = shots;
    return absl::OkStatus();
  }
  absl::Status BeginStep(int64_t step, uint32_t order, Stream) override {
    begun = {step, order};
    return absl::OkStatus();
  }
  const PeerMemory& memory() const override { return memory_; }
  std::optional<Wait> Waiting() const override { return waiting; }
  std::optional<Disagreement> Disagrees() const override { return disagrees; }
  void Abort() override { ++aborts; }

  std::pair<int64_t, uint32_t> begun;
  std::optional<Wait> waiting;
  std::optional<Disagreement> disagrees;
  std::vector<std::string> opened;
  absl::Status open;
  int sums = 0;
  int64_t last_bytes = 0;
  Shots last_shots = Shots::kBySize;
  int64_t one_shot_bytes = -1;  // as it was set
  int closed = 0;
  int aborts = 0;

 private:
  const int number_;
  const PeerMemory memory_ = {};
};

// Tells what a rank's device is said to take for a sum.
class FakeTimer final : public DeviceTimer {
 public:
  // Seconds of a sum of so many bytes, over memory or not.
  using Seconds = std::function<double(bool over_memory, int64_t bytes)>;
  FakeTimer(FakeSums& sums, FakeTransport& rest, Seconds seconds)
      : sums_(sums), rest_(rest), seconds_(std::move(seconds)) {}

  absl::StatusOr<void*> Memory(int64_t bytes) override {
    memory_.resize(bytes);
    return memory_.data();
  }
  Stream stream() const override { return {}; }
  absl::Status Capture(absl::FunctionRef<absl::Status()> give) override {
    const int sums = sums_.sums;
    const size_t rest = rest_.given.size();
    const absl::Status status = give();
    over_memory_ = sums_.sums > sums;
    count_ = over_memory_ ? sums_.sums - sums : static_cast<int>(rest_.given.size() - rest);
    bytes_ = over_memory_ ? sums_.last_bytes : rest_.given.back().bytes;
    return status;
  }
  absl::StatusOr<double> Replay(absl::FunctionRef<absl::Status()> between) override {
    ++replays;
    while (never) SKEIN_RETURN_IF_ERROR(between());
    return count_ * seconds_(over_memory_, bytes_);
  }

  bool never = false;  // is a replay over
  int replays = 0;

 private:
  FakeSums& sums_;
  FakeTransport& rest_;
  const Seconds seconds_;
  std::vector<std::byte> memory_;
  bool over_memory_ = false;
  int count_ = 0;
  int64_t bytes_ = 0;
};

class PeerTransportTest : public ::testing::Test {
 protected:
  struct Options {
    std::vector<std::string> hosts = {"a", "a"};
    std::vector<absl::Status> why = {{}, {}};  // an error: the rank has no sums
    absl::Status open;                         // of rank 1
    std::vector<FakeTimer::Seconds> seconds;   // by rank; empty: nothing is measured
    bool never = false;                        // is rank 1's first sum over
  };
  // Both ranks at once.
  void Make(const Options& options) {
    auto groups = MakeInProcessGroup(2, "pair");
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      auto sums = std::make_unique<FakeSums>(i);
      auto rest = std::make_unique<FakeTransport>();
      sums_[i] = sums.get();
      rest_[i] = rest.get();
      if (i == 1) sums->open = options.open;
      if (!options.seconds.empty()) {
        timers_[i] = std::make_unique<FakeTimer>(*sums, *rest, options.seconds[i]);
        timers_[i]->never = options.never && i == 1;
      }
      threads.emplace_back([&, i, sums = std::move(sums), rest = std::move(rest)]() mutable {
        PeerEnd end = {.self = absl::StrCat("rank ", i, " on a"),
                       .host = options.hosts[i],
                       .sums = std::move(sums),
                       .timer = timers_[i].get(),
                       .timeout = absl::Milliseconds(50)};
        if (!options.why[i].ok()) end.sums = options.why[i];
        made_[i] = MakePeerTransport(*groups[i], std::move(end), std::move(rest));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& made : made_) SKEIN_ASSERT_OK(made);
  }
  // Both ranks leave every sum to the rest.
  void ExpectRestAlone(const std::string& why) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(made_[i]->why_not, HasSubstr(why));
      EXPECT_EQ(made_[i]->transport.get(), rest_[i]);
    }
  }
  // Whether a sum of so many bytes goes over memory, on both ranks.
  bool OverMemory(int64_t bytes) {
    bool over[2] = {};
    for (int i = 0; i < 2; ++i) {
      std::vector<float> data(bytes / 4);
      const int before = sums_[i]->sums;
      const Call call = {.operation = Operation::kAllReduce, .number = 1, .bytes = bytes};
      SKEIN_EXPECT_OK(
          made_[i]->transport->AllReduce(call, HostView(absl::MakeSpan(data)), {}, patience_));
      over[i] = sums_[i]->sums > before;
      const PeerMemory* const of = made_[i]->transport->PeersOf(HostView(absl::MakeSpan(data)));
      EXPECT_EQ(of, over[i] ? &sums_[i]->memory() : nullptr);
    }
    EXPECT_EQ(over[0], over[1]) << bytes;
    return over[0];
  }

  FakeSums* sums_[2] = {};
  FakeTransport* rest_[2] = {};
  std::unique_ptr<FakeTimer> timers_[2];
  absl::StatusOr<PeerTransport> made_[2];
  const Patience patience_;
};

TEST_F(PeerTransportTest, SmallSumsGoOverMemoryAndAllElseDoesNot) {
  Make({});
  EXPECT_EQ(made_[1]->why_not, "");
  EXPECT_EQ(made_[1]->most_bytes, 64 * kKiB);
  EXPECT_THAT(sums_[1]->opened, ElementsAre("memory 0", "memory 1"));
  EXPECT_TRUE(OverMemory(64 * kKiB));
  EXPECT_TRUE(rest_[1]->given.empty());
  EXPECT_FALSE(OverMemory(64 * kKiB + 4));
  DeviceTransport& transport = *made_[1]->transport;
  float data[1] = {};
  const Call send = {.operation = Operation::kSend, .peer = 0, .number = 1};
  SKEIN_EXPECT_OK(transport.Send(send, ConstView{data, DType::kF32, 1, 1}, {}, patience_));
  const Call receive = {.operation = Operation::kReceive, .peer = 0, .number = 1};
  SKEIN_EXPECT_OK(transport.Receive(receive, {data, DType::kF32, 1, 1}, {}, patience_));
  EXPECT_EQ(sums_[1]->sums, 1);
  ASSERT_EQ(rest_[1]->given.size(), 3u);
  EXPECT_EQ(rest_[1]->given[1], send);
  EXPECT_EQ(rest_[1]->given[2], receive);
  EXPECT_EQ(transport.Others(send), "rank 7 on c");
  rest_[1]->state = absl::UnavailableError("lost");
  EXPECT_EQ(transport.Check(), rest_[1]->state);
  // It waits for NCCL's ranks, and where a sum over memory waits, for those that it waits for.
  EXPECT_EQ(transport.Others({.operation = Operation::kAllReduce}), "rank 7 on c, rank 8 on d");
  sums_[1]->waiting = {.ranks = {0}, .sum = "sum 2 of step 3"};
  EXPECT_EQ(transport.Others({.operation = Operation::kAllReduce}),
            "rank 0 on a in sum 2 of step 3");
  EXPECT_EQ(transport.Others(send), "rank 7 on c");
  transport.Abort();
  EXPECT_EQ(sums_[1]->aborts, 1);
  EXPECT_EQ(rest_[1]->aborts, 1);
}

TEST_F(PeerTransportTest, ARankThatMakesAnotherSumIsNamed) {
  Make({});
  DeviceTransport& transport = *made_[1]->transport;
  SKEIN_EXPECT_OK(transport.BeginStep(5, 77, {}));
  EXPECT_EQ(sums_[1]->begun, std::pair(int64_t{5}, 77u));
  SKEIN_EXPECT_OK(transport.Check());
  sums_[1]->disagrees = {.rank = 0, .expected = "sum 2 of step 5", .seen = "sum 1 of step 6"};
  EXPECT_THAT(transport.Check(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "rank 0 on a makes sum 1 of step 6, where this rank makes sum 2 of step 5: "
                       "they follow unlike orders"));
}

TEST_F(PeerTransportTest, WhereOneCannotNoneDoes) {
  Make({.hosts = {"a", "b"}});
  ExpectRestAlone("the group's ranks are on several hosts");
  Make({.why = {{}, absl::ResourceExhaustedError("no memory")}});
  ExpectRestAlone("rank 1 of the group: no memory");
  Make({.open = absl::FailedPreconditionError("no peer access between GPU 0 and 1")});
  ExpectRestAlone("rank 1 of the group: no peer access between GPU 0 and 1");
}

// A sum costs 3 us and 1 us for each 8 KiB over memory, and 8 us over the rest.
double Faster(bool over_memory, int64_t bytes) {
  return over_memory ? 3e-6 + 1e-6 * static_cast<double>(bytes) / (8.0 * kKiB) : 8e-6;
}
double Slower(bool over_memory, int64_t bytes) {
  return Faster(over_memory, bytes) * (over_memory ? 900 : 1);
}

TEST_F(PeerTransportTest, AllTakeTheLimitThatRankZeroMeasures) {
  // Rank 1 alone would leave all sums to the rest.
  Make({.seconds = {Faster, Slower}});
  EXPECT_EQ(made_[0]->why_not, "");
  for (const auto& made : made_) EXPECT_EQ(made->most_bytes, 32 * kKiB);
  EXPECT_TRUE(OverMemory(32 * kKiB));
  EXPECT_FALSE(OverMemory(32 * kKiB + 4));
  // Of the same sums in the same order, though they take unlike times.
  EXPECT_EQ(timers_[0]->replays, timers_[1]->replays);
  EXPECT_EQ(sums_[0]->sums, sums_[1]->sums);
  ASSERT_EQ(made_[0]->times.size(), 4u);
  EXPECT_EQ(DescribeTimes(made_[0]->times),
            "8.0 KiB 4.0 and 8.0 us, 16.0 KiB 5.0 and 8.0 us, 32.0 KiB 7.0 and 8.0 us, "
            "64.0 KiB 11.0 and 8.0 us");

  Make({.seconds = {Slower, Faster}});
  ExpectRestAlone("it is slower at all sizes: 8.0 KiB ");
}

// The other rank comes late to the first replay of each kind, and to the first that counts.
TEST_F(PeerTransportTest, ALateRankChangesNoLimit) {
  std::map<std::pair<bool, int64_t>, int> replays;
  Make({.seconds = {[&](bool over_memory, int64_t bytes) {
                      const int replay = replays[{over_memory, bytes}]++;
                      const bool late = over_memory && (replay == 0 || replay == 2);
                      return Faster(over_memory, bytes) + (late ? 5e-4 : 0);
                    },
                    Faster}});
  for (const auto& made : made_) EXPECT_EQ(made->most_bytes, 32 * kKiB);
  EXPECT_EQ(made_[0]->times[0].over_memory, 4e-6);
}

// Of three ranks one shot carries more, and two shots wait twice.
TEST(PeerTransportOfThreeTest, AllTakeOneShotToWhereRankZeroMeasuresTwoAsFaster) {
  auto groups = MakeInProcessGroup(3, "trio");
  std::vector<FakeSums*> sums(3);
  std::vector<absl::StatusOr<PeerTransport>> made(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      auto own = std::make_unique<FakeSums>(i);
      auto rest = std::make_unique<FakeTransport>();
      sums[i] = own.get();
      FakeTimer timer(*own, *rest, [&, i](bool over_memory, int64_t bytes) {
        const double packet = 1e-6 * static_cast<double>(bytes) / (8.0 * kKiB);
        if (!over_memory) return 6.5e-6;
        if (sums[i]->last_shots == PeerSums::Shots::kTwo) return 4e-6 + packet / 4;
        return 2e-6 + packet * (i == 0 ? 1 : 100);
      });
      made[i] = MakePeerTransport(*groups[i],
                                  {.self = absl::StrCat("rank ", i, " on a"),
                                   .host = "a",
                                   .sums = std::move(own),
                                   .timer = &timer,
                                   .timeout = absl::Seconds(10)},
                                  std::move(rest));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 3; ++i) {
    SKEIN_ASSERT_OK(made[i]);
    EXPECT_EQ(sums[i]->one_shot_bytes, 16 * kKiB);  // 4 us, and 4.5; 6 and 5 behind it
    EXPECT_EQ(made[i]->one_shot_bytes, 16 * kKiB);
    EXPECT_EQ(made[i]->most_bytes, 64 * kKiB);  // 6 us by the faster way
  }
}

TEST_F(PeerTransportTest, WhereAFirstSumDoesNotComeThroughNoneGoesOverMemory) {
  Make({.seconds = {Faster, Faster}, .never = true});
  ExpectRestAlone("rank 1 of the group: a first sum over peer memory was not over within 50ms");
}

TEST(OneShotOf, IsTheLastSizeBeforeOneThatTwoShotsSumFaster) {
  const SumTimes one = {.bytes = 8, .one_shot = true};
  EXPECT_EQ(OneShotOf({}), 0);
  EXPECT_EQ(OneShotOf({{.bytes = 8}}), 0);
  EXPECT_EQ(OneShotOf({one, {.bytes = 16}, {.bytes = 32, .one_shot = true}}), 8);
}

TEST(CrossoverOf, IsTheLastSizeBeforeASlowerOne) {
  EXPECT_EQ(CrossoverOf({}), 0);
  EXPECT_EQ(CrossoverOf({{8, 2, 1}, {16, 1, 2}}), 0);
  EXPECT_EQ(CrossoverOf({{8, 1, 2}, {16, 2, 1}, {32, 1, 2}}), 8);
  EXPECT_EQ(CrossoverOf({{8, 1, 2}, {16, 2, 2}, {32, 3, 2}}), 16);
  EXPECT_EQ(CrossoverOf({{8, 1, 2}, {16, 1, 2}}), 16);
}

}  // namespace
}  // namespace skein::comm

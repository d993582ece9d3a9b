// Sums over peer memory: ranks are streams of one GPU here, with an exchange buffer each.
#include "kernels/cuda/peer_sum.h"

#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/test_util.h"
#include "base/tree_sum.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/peer_sum_norm.h"
#include "kernels/cuda/resources.h"

namespace skein::kernels::cuda {
namespace {

// Before CUDA starts: a queue of the device for each stream, since kernels that wait for each other
// must not stand in one, and no kernel loaded while another one waits, which may wait for that one.
const int kQueues = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
const int kLoading = setenv("CUDA_MODULE_LOADING", "EAGER", 1);

constexpr absl::Duration kSoon = absl::Seconds(10);

// Of both signs and many magnitudes, so that sums in another order differ.
std::vector<float> Input(DType dtype, int rank, int sum, int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    const auto mixed = static_cast<uint32_t>((i * 8 + rank) * 16 + sum + 1) * 2654435761u;
    const float fraction = static_cast<float>(mixed >> 8) / 0x1000000 - 0.5f;
    values[i] = fraction * static_cast<float>(1 << (mixed & 15)) / 256;
  }
  return Rounded(dtype, std::move(values));
}

std::vector<float> Tree(DType dtype, const std::vector<std::vector<float>>& inputs) {
  std::vector<float> out(inputs[0].size());
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = TreeSum(0, static_cast<int64_t>(inputs.size()),
                     [&](int64_t rank) { return inputs[rank][i]; });
  }
  return Rounded(dtype, std::move(out));  // to nearest even
}

// A group's ranks on one device.
class Peers {
 public:
  explicit Peers(int ranks) : ranks_(ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      exchange_.push_back(*DeviceMemory::Allocate(kExchangeBytes, "a test"));
      Require(ClearExchange(exchange_.back().data()));
      turns_.push_back(*DeviceMemory::Allocate(sizeof(PeerTurn), "a test"));
      reports_.push_back(*PinnedMemory::Allocate(sizeof(PeerReport), "a test"));
      new (reports_.back().data()) PeerReport;
      streams_.push_back(*OwnedStream::Create());
    }
  }
  PeerMemory memory(int rank) const {
    PeerMemory memory = {.rank = rank,
                         .ranks = ranks_,
                         .turn = reinterpret_cast<PeerTurn*>(turns_[rank].data()),
                         .report = reinterpret_cast<PeerReport*>(reports_[rank].data()),
                         .one_shot_bytes = OneShotBytes(ranks_)};
    for (int peer = 0; peer < ranks_; ++peer) memory.exchange[peer] = exchange_[peer].data();
    return memory;
  }
  // What the rank's kernels have told.
  PeerReport report(int rank) const {
    PeerReport report;
    std::memcpy(&report, reports_[rank].data(), sizeof(report));
    return report;
  }
  absl::Status Enqueue(int rank, DType dtype, void* data, int64_t bytes,
                       PeerSum::Shots shots = PeerSum::Shots::kBySize) {
    return cuda::Enqueue(
        PeerSum{
            .memory = memory(rank), .dtype = dtype, .bytes = bytes, .data = data, .shots = shots},
        stream(rank));
  }
  absl::Status BeginStep(int rank, uint32_t step, uint32_t order) {
    return cuda::Enqueue(BeginPeerStep{.turn = memory(rank).turn, .step = step, .order = order},
                         stream(rank));
  }
  Stream stream(int rank) const { return streams_[rank].get(); }
  // Whether all that the rank's stream has is done soon.
  bool Ends(int rank, absl::Duration within = kSoon) {
    OwnedEvent event = *OwnedEvent::Create();
    Require(event.Record(stream(rank)));
    const absl::Time deadline = absl::Now() + within;
    while (absl::Now() < deadline) {
      if (*event.Done()) return true;
      std::this_thread::yield();
    }
    return false;
  }
  // Of all ranks; ends them where they hang.
  void ExpectEnds() {
    for (int rank = 0; rank < ranks_; ++rank) {
      if (Ends(rank)) continue;
      ADD_FAILURE() << "rank " << rank << " waits for packets that do not come";
      Abort();
    }
  }
  void Abort() {
    for (int rank = 0; rank < ranks_; ++rank) {
      *const_cast<volatile uint32_t*>(&memory(rank).report->aborted) = 1;
    }
  }

 private:
  const int ranks_;
  std::vector<DeviceMemory> exchange_;
  std::vector<DeviceMemory> turns_;
  std::vector<PinnedMemory> reports_;
  std::vector<OwnedStream> streams_;
};

class PeerSumTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { SKEIN_NEED_GPU(); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, PeerSumTest, testing::Range(2, kMostPeers + 1));

// Sums of all sizes, one behind the other, so that both halves of the buffers are used again, after
// larger and smaller ones, and of both kinds.
TEST_P(PeerSumTest, SumsAreTreesOfFloatsRoundedOnce) {
  const int ranks = GetParam();
  Peers peers(ranks);
  struct Case {
    int64_t bytes;
    PeerSum::Shots shots;
  };
  constexpr auto kBySize = PeerSum::Shots::kBySize;
  constexpr auto kOne = PeerSum::Shots::kOne;
  constexpr auto kTwo = PeerSum::Shots::kTwo;
  // Kernels of all ranks are on the one device at once.
  const int64_t one_shot = std::min(MostOneShotBytes(ranks), kMostPeerSumBytes / ranks / 8 * 8);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    int sum = 0;
    for (const auto& [bytes, shots] : {Case{8, kBySize},
                                       {2056, kOne},
                                       {16384, kBySize},
                                       {8, kTwo},
                                       {131064, kTwo},
                                       {24, kTwo},
                                       {131072, kBySize},
                                       {8192, kTwo},
                                       {64, kOne},
                                       {one_shot, kOne},
                                       {kMostPeerSumBytes - 8, kTwo},
                                       {8, kOne},
                                       {kMostPeerSumBytes, kBySize}}) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes of " << std::string(DTypeName(dtype))
                                      << ", " << static_cast<int>(shots));
      const int64_t count = bytes / DTypeBytes(dtype, 1);
      std::vector<DeviceBytes> data;
      std::vector<std::vector<float>> inputs;
      for (int rank = 0; rank < ranks; ++rank) {
        inputs.push_back(Input(dtype, rank, sum, count));
        data.push_back(Encoded(dtype, inputs.back()));
      }
      for (int rank = 0; rank < ranks; ++rank) {
        SKEIN_ASSERT_OK(peers.Enqueue(rank, dtype, data[rank].data(), bytes, shots));
      }
      peers.ExpectEnds();
      const std::vector<float> want = Tree(dtype, inputs);
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<float> got = Decoded(dtype, data[rank]);
        const auto first = std::mismatch(got.begin(), got.end(), want.begin());
        ASSERT_EQ(first.first, got.end()) << "rank " << rank << ", " << first.first - got.begin()
                                          << ": " << *first.first << " against " << *first.second;
      }
      ++sum;
    }
  }
}

// Ranks run ahead of each other by as much as they can.
TEST_P(PeerSumTest, ManySumsFollowEachOther) {
  const int ranks = GetParam();
  constexpr int kSums = 32;
  constexpr int64_t kCount = 512;
  Peers peers(ranks);
  std::vector<DeviceBytes> data;
  for (int rank = 0; rank < ranks; ++rank) {
    data.push_back(Encoded(DType::kF32, std::vector<float>(kCount, rank == 0 ? 1.0f : 0.0f)));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    for (int sum = 0; sum < kSums; ++sum) {
      const int64_t bytes = sum % 2 == 0 ? kCount * 4 : 8;
      const auto shots = sum % 3 == 0 ? PeerSum::Shots::kTwo : PeerSum::Shots::kOne;
      SKEIN_ASSERT_OK(peers.Enqueue(rank, DType::kF32, data[rank].data(), bytes, shots));
    }
  }
  peers.ExpectEnds();
  // The first sum makes all 1; each further one of an element adds what all ranks have alike. Such
  // powers are no floats beyond 2^24, and are rounded on the way as the tree has it.
  const auto power = [&](int sums) {
    float all = 1;
    for (int sum = 1; sum < sums; ++sum) all = TreeSum(0, ranks, [all](int64_t) { return all; });
    return all;
  };
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> got = Decoded(DType::kF32, data[rank]);
    EXPECT_EQ(got[0], power(kSums));
    EXPECT_EQ(got[kCount - 1], power(kSums / 2));
  }
}

TEST_P(PeerSumTest, AGraphCountsItsSumsAtEachReplay) {
  const int ranks = GetParam();
  constexpr int64_t kBytes = 8192;
  constexpr int kReplays = 3;
  Peers peers(ranks);
  std::vector<DeviceBytes> data;
  std::vector<OwnedGraph> graphs;
  for (int rank = 0; rank < ranks; ++rank) {
    data.push_back(Encoded(DType::kBF16, std::vector<float>(kBytes / 2, rank == 0 ? 1.0f : 0.0f)));
    SKEIN_ASSERT_OK_AND_ASSIGN(
        OwnedGraph graph, OwnedGraph::Capture(peers.stream(rank), [&]() -> absl::Status {
          for (int sum = 0; sum < 3; ++sum) {
            SKEIN_RETURN_IF_ERROR(
                peers.Enqueue(rank, DType::kBF16, data.back().data(), sum == 1 ? kBytes : 16));
          }
          return absl::OkStatus();
        }));
    graphs.push_back(std::move(graph));
  }
  for (int replay = 0; replay < kReplays; ++replay) {
    for (int rank = 0; rank < ranks; ++rank) {
      SKEIN_ASSERT_OK(graphs[rank].Launch(peers.stream(rank)));
    }
  }
  peers.ExpectEnds();
  const std::vector<float> got = Decoded(DType::kBF16, data[ranks - 1]);
  float want = 1;
  for (int sum = 1; sum < kReplays; ++sum) {
    want = Decoded(DType::kBF16, Encoded(DType::kBF16, {want * static_cast<float>(ranks)}))[0];
  }
  EXPECT_EQ(got.back(), want);
}

TEST_P(PeerSumTest, WhoWaitsInVainEndsWhenItIsAborted) {
  const int ranks = GetParam();
  Peers peers(ranks);
  const DeviceBytes data = Encoded(DType::kF32, std::vector<float>(2048, 1.0f));
  for (int rank = 0; rank + 1 < ranks; ++rank) {
    SKEIN_ASSERT_OK(peers.BeginStep(rank, 4, 40));
    SKEIN_ASSERT_OK(peers.Enqueue(rank, DType::kF32, data.data(), 8192));
  }
  ASSERT_EQ(kQueues + kLoading, 0);
  EXPECT_FALSE(peers.Ends(0, absl::Milliseconds(100)));
  // Each has told whom it waits for, and in which sum.
  for (int rank = 0; rank + 1 < ranks; ++rank) {
    const PeerReport report = peers.report(rank);
    for (int other = 0; other < ranks; ++other) {
      EXPECT_EQ(report.late[other] != 0, other == ranks - 1) << rank << " of " << other;
    }
    EXPECT_EQ(report.waits.step, 4u);
    EXPECT_EQ(report.waits.sum, 1u);
    EXPECT_EQ(report.waits.size & 0xffffff, 8192u);
  }
  peers.Abort();
  for (int rank = 0; rank + 1 < ranks; ++rank) EXPECT_TRUE(peers.Ends(rank));
  // Nor is anybody waited for afterwards.
  SKEIN_ASSERT_OK(peers.Enqueue(0, DType::kF32, data.data(), 8192));
  EXPECT_TRUE(peers.Ends(0));
}

// The last rank makes another sum than the others: all find out, and nobody waits for what does not
// come.
void ExpectFound(int ranks, uint32_t step, uint32_t order, int sums, int64_t bytes) {
  SCOPED_TRACE(testing::Message() << "step " << step << ", order " << order << ", " << sums
                                  << " sums, " << bytes << " bytes");
  Peers peers(ranks);
  std::vector<DeviceBytes> data;
  // Before the first sum, which keeps the device busy until the last rank has come.
  for (int rank = 0; rank < ranks; ++rank) {
    data.push_back(Encoded(DType::kF32, std::vector<float>(4096, 1.0f)));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const bool other = rank == ranks - 1;
    // A step that ends well goes before.
    SKEIN_ASSERT_OK(peers.BeginStep(rank, 6, 60));
    SKEIN_ASSERT_OK(peers.Enqueue(rank, DType::kF32, data[rank].data(), 64));
    // Who lacks a sum comes to the next step before the others.
    for (int sum = 1; sum < (other ? sums : 2); ++sum) {
      SKEIN_ASSERT_OK(peers.Enqueue(rank, DType::kF32, data[rank].data(), 64));
    }
    SKEIN_ASSERT_OK(peers.BeginStep(rank, other ? step : 7, other ? order : 70));
    SKEIN_ASSERT_OK(peers.Enqueue(rank, DType::kF32, data[rank].data(), other ? bytes : 8192));
  }
  peers.ExpectEnds();
  for (int rank = 0; rank + 1 < ranks; ++rank) {
    const PeerReport report = peers.report(rank);
    EXPECT_NE(report.aborted, 0u);
    for (int other = 0; other < ranks; ++other) {
      EXPECT_EQ(report.wrong[other] != 0, other == ranks - 1) << rank << " of " << other;
    }
    const PeerSumHead own = report.waits, theirs = report.theirs[ranks - 1];
    EXPECT_TRUE(own.step != theirs.step || own.order != theirs.order || own.sum != theirs.sum ||
                own.size != theirs.size);
  }
  const PeerReport last = peers.report(ranks - 1);
  EXPECT_TRUE(
      std::any_of(last.wrong, last.wrong + ranks, [](uint32_t wrong) { return wrong != 0; }));
}

TEST_P(PeerSumTest, RanksThatMakeUnlikeSumsFindOut) {
  const int ranks = GetParam();
  ExpectFound(ranks, 8, 70, 2, 8192);   // another step
  ExpectFound(ranks, 7, 71, 2, 8192);   // another order
  ExpectFound(ranks, 7, 70, 1, 8192);   // a sum was left out before
  ExpectFound(ranks, 7, 70, 2, 16384);  // another size, larger and smaller
  ExpectFound(ranks, 7, 70, 2, 16);
}

// With a norm on the way, the bits are those of the two kernels that do it one after the other, and
// sums before and behind it are as ever.
void ExpectFused(int ranks, int64_t rows, int64_t cols, DType residual_dtype, bool in_place,
                 DType dtype = DType::kBF16) {
  SCOPED_TRACE(testing::Message() << rows << " x " << cols << " beside "
                                  << std::string(DTypeName(residual_dtype)));
  constexpr float kEps = 1e-5f;
  const int64_t count = rows * cols;
  const DeviceArray<float> gain(Input(DType::kF32, 0, 9, cols));
  std::vector<std::vector<float>> results;  // of the two kernels, then of the one
  for (const bool fused : {false, true}) {
    Peers peers(ranks);
    std::vector<DeviceBytes> residual, delta, out, other;
    std::vector<PeerSumNorm> ops;
    for (int rank = 0; rank < ranks; ++rank) {
      residual.push_back(Encoded(residual_dtype, Input(residual_dtype, 0, 1, count)));
      delta.push_back(Encoded(dtype, Input(dtype, rank, 2, count)));
      out.emplace_back(2 * count);
      other.push_back(Encoded(dtype, Input(dtype, rank, 3, 1024)));
      ops.push_back({.memory = peers.memory(rank),
                     .norm = {.dtype = dtype,
                              .residual_dtype = residual_dtype,
                              .delta_dtype = dtype,
                              .rows = rows,
                              .cols = cols,
                              .residual = residual[rank].data(),
                              .delta = delta[rank].data(),
                              .gain = gain.get(),
                              .eps = kEps,
                              .out = in_place ? delta[rank].data() : out[rank].data(),
                              .residual_stride = cols,
                              .delta_stride = cols,
                              .out_stride = cols},
                     .delta = delta[rank].data()});
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const auto sum_other = [&] { return peers.Enqueue(rank, dtype, other[rank].data(), 2048); };
      SKEIN_ASSERT_OK(sum_other());
      if (fused) {
        ASSERT_TRUE(HasKernel(ops[rank]));
        SKEIN_ASSERT_OK(cuda::Enqueue(ops[rank], peers.stream(rank)));
      } else {
        SKEIN_ASSERT_OK(peers.Enqueue(rank, dtype, delta[rank].data(), 2 * count));
        SKEIN_ASSERT_OK(cuda::Enqueue(ops[rank].norm, peers.stream(rank)));
      }
      SKEIN_ASSERT_OK(sum_other());
    }
    peers.ExpectEnds();
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(peers.report(rank).aborted, 0u);
      std::vector<float>& result = results.emplace_back(Decoded(residual_dtype, residual[rank]));
      for (const DeviceBytes* part : {&delta[rank], &other[rank]}) {
        const std::vector<float> values = Decoded(dtype, *part);
        result.insert(result.end(), values.begin(), values.end());
      }
      if (in_place) continue;
      const std::vector<float> values = Decoded(dtype, out[rank]);
      result.insert(result.end(), values.begin(), values.end());
    }
  }
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(results[rank], results[ranks + rank]) << rank;
  EXPECT_EQ(results[0], results[ranks - 1]);
}

TEST_P(PeerSumTest, ANormOnTheWayChangesNoBit) {
  const int ranks = GetParam();
  if (ranks != 2 && ranks != 4 && ranks != 8) GTEST_SKIP() << "has no kernel";
  for (const DType residual : {DType::kBF16, DType::kF32}) {
    ExpectFused(ranks, 1, 8, residual, false);
    ExpectFused(ranks, 3, 4096, residual, true);
    ExpectFused(ranks, 5, 2056, residual, false);
    ExpectFused(ranks, 1, 16384, residual, true);
    ExpectFused(ranks, 16, 2048, residual, false);
  }
  // In two shots, where ranks are more than two; few enough for all blocks to run at once.
  for (const DType residual : {DType::kBF16, DType::kF32}) {
    ExpectFused(ranks, 13, 8192, residual, false);
    ExpectFused(ranks, 7, 16384, residual, true);
    ExpectFused(ranks, 33, 2056, residual, false);
  }
  ExpectFused(ranks, 3, 4096, DType::kF16, false, DType::kF16);
  if (ranks == 2) ExpectFused(ranks, 128, 4096, DType::kBF16, false);
}

TEST(PeerSumRefusals, NameWhatIsWrong) {
  uint64_t data = 0;
  const PeerMemory two = {.ranks = 2};
  EXPECT_THAT(Enqueue(PeerSum{.memory = two, .bytes = 12, .data = &data}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::HasSubstr("a peer sum of 12 bytes: they are multiples of 8")));
  EXPECT_FALSE(
      Enqueue(PeerSum{.memory = two, .bytes = kMostPeerSumBytes + 8, .data = &data}, {}).ok());
  EXPECT_FALSE(
      Enqueue(PeerSum{.memory = {.rank = 2, .ranks = 2}, .bytes = 8, .data = &data}, {}).ok());
  EXPECT_FALSE(Enqueue(PeerSum{.memory = {.ranks = 9}, .bytes = 8, .data = &data}, {}).ok());
  EXPECT_FALSE(Enqueue(PeerSum{.memory = {.ranks = 8, .one_shot_bytes = kMostPeerSumBytes / 2},
                               .bytes = 8,
                               .data = &data},
                       {})
                   .ok());
  // One shot of 8 ranks has places for a quarter.
  EXPECT_FALSE(Enqueue(PeerSum{.memory = {.ranks = 8},
                               .bytes = kMostPeerSumBytes / 2,
                               .data = &data,
                               .shots = PeerSum::Shots::kOne},
                       {})
                   .ok());
  EXPECT_THAT(Enqueue(PeerSum{.memory = two, .dtype = DType::kI32, .bytes = 8, .data = &data}, {}),
              StatusIs(absl::StatusCode::kUnimplemented, testing::HasSubstr("of I32")));
}

}  // namespace
}  // namespace skein::kernels::cuda

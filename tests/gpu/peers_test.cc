// What goes over peer memory alone: the measured limit, ranks that disagree, a sum with a norm in
// one kernel.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/device_copies.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/stream.h"
#include "base/test_util.h"
#include "base/view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_copies.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/resources.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/program.h"
#include "kernels/testing/harness.h"
#include "parallel/comm/p2p/crossover.h"
#include "tests/gpu/two_ranks.h"

namespace skein::comm {
namespace {

using kernels::cuda::DeviceArray;
using kernels::cuda::OwnedGraph;

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

// Holds `rows` of a Program of a sum and a norm against the host's, in double.
void ExpectNorm(Rank& rank, Group& group, DType residual_dtype, int64_t rows, int64_t cols,
                bool in_place, bool fused) {
  SCOPED_TRACE(testing::Message() << rows << " x " << cols << " beside "
                                  << std::string(DTypeName(residual_dtype)));
  constexpr float kEps = 1e-5f;
  GroupSums sums(group);
  kernels::TestProgram p;
  p.limits = {.rows = rows, .outputs = rows, .slots = 1, .slot_pages = 1};
  p.collectives = &sums;
  const kernels::BufferId residual = p.AddBuffer(cols);
  const kernels::BufferId delta = p.AddBuffer(cols);
  const kernels::BufferId out = in_place ? delta : p.AddBuffer(cols);
  for (kernels::BufferSpec& buffer : p.program.buffers) buffer.dtype = DType::kBF16;
  p.program.buffers[residual].dtype = residual_dtype;
  const std::vector<float> gain = kernels::RandomFloats(5, cols, 2);
  p.Add(kernels::AllReduceOp{delta});
  p.Add(kernels::AddRmsNormOp{residual, delta, p.AddVector(gain), kEps, out});
  const auto backend = *kernels::MakeCudaBackend({.device = rank.device, .threads = 1});
  p.Bind(*backend);
  const int64_t count = rows * cols;
  const std::vector<float> before = Input(7, count, residual_dtype);
  const std::vector<float> inputs[] = {Input(0, count, DType::kBF16),
                                       Input(1, count, DType::kBF16)};
  const auto copies = *kernels::MakeCudaCopies(rank.device);
  const auto wait_on = [] { return absl::OkStatus(); };
  const auto set = [&](kernels::BufferId id, const std::vector<float>& values) {
    const View view = p.executable->port(id, 0).First(rows);
    std::vector<std::byte> stored(view.bytes());
    ConvertFromFloat(view.dtype, values.data(), count, stored.data());
    SKEIN_ASSERT_OK(copies->ToDevice(stored.data(), view, group.stream.get(), wait_on));
  };
  const auto get = [&](kernels::BufferId id) {
    const View view = p.executable->port(id, 0).First(rows);
    std::vector<std::byte> stored(view.bytes());
    SKEIN_EXPECT_OK(copies->ToHost(view, stored.data(), group.stream.get(), wait_on));
    std::vector<float> values(count);
    ConvertToFloat(view.dtype, stored.data(), count, values.data());
    return values;
  };
  set(residual, before);
  set(delta, inputs[rank.number()]);
  const int fused_before = sums.fused;
  p.executable->batch(0) = kernels::BatchOf(
      {{.pages = {0}, .token_ids = std::vector<int32_t>(static_cast<size_t>(rows), 0)}});
  SKEIN_ASSERT_OK_AND_ASSIGN(const kernels::Ticket ticket, p.executable->Enqueue(0));
  SKEIN_ASSERT_OK(p.executable->Wait(ticket, kHostStream, absl::InfiniteFuture()).status());
  // One row is a graph's, which has captured the kernel.
  EXPECT_EQ(sums.fused - fused_before, fused && rows > 1 ? 1 : 0);

  const std::vector<float> got_residual = get(residual), got_delta = get(delta), got = get(out);
  std::vector<float> sum(count);
  for (int64_t i = 0; i < count; ++i) sum[i] = inputs[0][i] + inputs[1][i];
  sum = kernels::cuda::Rounded(DType::kBF16, sum);
  // NCCL may round otherwise where it makes the sum.
  const float apart = fused ? 0.0f : 0x1p-8f;
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t i = r * cols + c;
      if (!in_place) ASSERT_LE(std::abs(got_delta[i] - sum[i]), apart * std::abs(sum[i])) << i;
      const float both = before[i] + sum[i];
      const float want = kernels::cuda::Rounded(residual_dtype, {both})[0];
      ASSERT_LE(std::abs(got_residual[i] - want), apart * (std::abs(sum[i]) + std::abs(want))) << i;
      squares += static_cast<double>(got_residual[i]) * got_residual[i];
    }
    const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + kEps);
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t i = r * cols + c;
      const double want = got_residual[i] * scale * gain[c];
      // The output is rounded; floats before it are by 2^-24 for each of some 30 additions and
      // products that a row's elements go through one after the other.
      const double error = kernels::cuda::UnitRoundoff(DType::kBF16) + 0x1p-19;
      ASSERT_NEAR(got[i], want, error * std::abs(want)) << i;
    }
  }
}

TEST(PeersTest, ASumWithANormIsOneKernel) {
  OnRanks([](Rank& rank) {
    Group group(rank, "tp", Group::Peers::kAll);
    for (const DType residual : {DType::kBF16, DType::kF32}) {
      ExpectNorm(rank, group, residual, 1, 8, false, true);
      ExpectNorm(rank, group, residual, 2, 8, false, true);
      ExpectNorm(rank, group, residual, 3, 4096, false, true);
      ExpectNorm(rank, group, residual, 5, 2056, true, true);
      ExpectNorm(rank, group, residual, 2, 16384, false, true);
    }
    ExpectNorm(rank, group, DType::kBF16, 64, 2048, true, true);
    // More than go over memory, or than a thread has of a row.
    ExpectNorm(rank, group, DType::kBF16, 129, 4096, false, false);
    ExpectNorm(rank, group, DType::kBF16, 1, 16392, false, false);
  });
}

}  // namespace
}  // namespace skein::comm

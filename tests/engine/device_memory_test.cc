// What a rank takes of a GPU's memory, beside what a plan counts for it.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/peer_sums.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_peer_sums.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/ops/sizes.h"
#include "model/synthetic/synthetic.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/memory.h"
#include "parallel/program/rank_program.h"

namespace skein {
namespace {

struct Case {
  const char* name;
  const char* model;
  int32_t max_num_seqs;
  int32_t rows;
  int64_t pages;
  kernels::KvDType kv_dtype = kernels::KvDType::kBF16;
};

class DeviceMemoryTest : public testing::TestWithParam<Case> {};

// What is free once processes that have ended have given theirs back: when nothing changes for a
// second.
int64_t SettledFreeBytes() {
  int64_t free = kernels::cuda::FreeMemoryBytes().value_or(0);
  for (int same = 0, looks = 0; same < 5 && looks < 100; ++same, ++looks) {
    absl::SleepFor(absl::Milliseconds(200));
    const int64_t now = kernels::cuda::FreeMemoryBytes().value_or(0);
    if (now != free) same = -1;
    free = now;
  }
  return free;
}

// What was free before the first case, which alone takes the context: the others find it there.
int64_t FreeAtFirst() {
  static const int64_t free = SettledFreeBytes();
  return free;
}

TEST_P(DeviceMemoryTest, EstimateIsWithin3PercentOfWhatIsUsed) {
  SKEIN_NEED_GPU();
  const Case& c = GetParam();
  const int64_t free_at_first = FreeAtFirst();
  ASSERT_GT(free_at_first, 0);
  std::string parts;
  int64_t last = free_at_first;
  const auto note = [&](const char* what) {
    const int64_t now = *kernels::cuda::FreeMemoryBytes();
    char text[64];
    std::snprintf(text, sizeof(text), " %s %.1f", what,
                  static_cast<double>(last - now) / (1 << 20));
    parts += text;
    last = now;
  };
  SKEIN_ASSERT_OK_AND_ASSIGN(model::SyntheticModel model, model::ParseSyntheticSpec(c.model));
  const plan::ReplicaLimits limits = {.context_length = 8192,
                                      .max_num_seqs = c.max_num_seqs,
                                      .max_micro_batch_rows = c.rows,
                                      .page_size = 16,
                                      .kv_dtype = c.kv_dtype,
                                      .hop_dtype = DType::kBF16,
                                      .pages = c.pages,
                                      .device = DeviceKind::kCuda};
  const Range layers = {0, model.config.num_layers};
  SKEIN_ASSERT_OK_AND_ASSIGN(const plan::RankMemory estimate,
                             plan::MemoryOfRank(model.config, 0, layers, limits));
  SKEIN_ASSERT_OK_AND_ASSIGN(const plan::RankProgram rank,
                             plan::BuildRankProgram(model.config, nullptr,
                                                    {.layers = layers,
                                                     .page_size = limits.page_size,
                                                     .pages = limits.pages,
                                                     .kv_dtype = limits.kv_dtype,
                                                     .hop_dtype = limits.hop_dtype,
                                                     .activations = kernels::ActivationDType(
                                                         limits.device, model.config.dtype)}));
  SKEIN_ASSERT_OK(kernels::DescribeCudaDevice(0).status());
  note("context");
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto backend, kernels::MakeCudaBackend({}));
  // Of zeros: nothing is loaded.
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto weights, backend->AllocateWeights(rank.program));
  note("weights");
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto kv, backend->AllocateKv(rank.kv));
  note("KV");
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto executable,
                             backend->Compile(rank.program,
                                              {.rows = c.rows,
                                               .outputs = plan::MaxOutputs(c.max_num_seqs, c.rows),
                                               .slots = c.max_num_seqs,
                                               .slot_pages = limits.context_pages()},
                                              {.weights = weights.get(), .kv = kv.get()}));
  note("buffers");
  SKEIN_ASSERT_OK(executable->WarmUp());
  note("warm-up");
  const double used = static_cast<double>(free_at_first - last);
  const double ratio = static_cast<double>(estimate.device_bytes()) / used;
  std::printf("%s: estimate %.1f MiB, used %.1f MiB: %.4f; MiB:%s\n", c.name,
              static_cast<double>(estimate.device_bytes()) / (1 << 20), used / (1 << 20), ratio,
              parts.c_str());
  EXPECT_NEAR(ratio, 1, 0.03);
}

// An end of sums over peer memory takes what plans count for it. Of a device that is in use
// already.
TEST(PeerSumMemoryTest, EstimateIsWhatEndsOfAGroupTake) {
  SKEIN_NEED_GPU();
  FreeAtFirst();
  constexpr int kEnds = 4;
  SKEIN_ASSERT_OK(kernels::DescribeCudaDevice(0).status());
  SKEIN_ASSERT_OK_AND_ASSIGN(const int64_t before, kernels::cuda::FreeMemoryBytes());
  std::vector<std::unique_ptr<PeerSums>> ends;
  for (int rank = 0; rank < kEnds; ++rank) {
    SKEIN_ASSERT_OK_AND_ASSIGN(ends.emplace_back(), kernels::MakeCudaPeerSums(0, rank, kEnds));
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(const int64_t after, kernels::cuda::FreeMemoryBytes());
  const int64_t estimate = kEnds * kernels::PeerSumBytes(DeviceKind::kCuda, kEnds);
  // Counters of all ends share one piece of 2 MiB.
  EXPECT_GE(before - after, estimate);
  EXPECT_LE(before - after, estimate + (int64_t{2} << 20));
}

INSTANTIATE_TEST_SUITE_P(Models, DeviceMemoryTest,
                         testing::Values(Case{"Alone", "synthetic:llama3-1b", 1, 256, 512},
                                         Case{"Few", "synthetic:llama3-1b", 16, 512, 1024},
                                         Case{"Int8", "synthetic:llama3-1b", 16, 512, 8192,
                                              kernels::KvDType::kInt8},
                                         Case{"Many", "synthetic:llama3-1b", 256, 2048, 8192},
                                         Case{"Large", "synthetic:llama3-8b", 256, 2048, 8192}),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

}  // namespace
}  // namespace skein

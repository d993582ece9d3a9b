#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/cpu/ceilings.h"
#include "kernels/testing/harness.h"

namespace skein::kernels {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MakeCpuBackendTest, RefusesWhatCannotBe) {
  EXPECT_THAT(MakeCpuBackend({.threads = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("threads is 0")));
#if HWY_ARCH_X86
  EXPECT_THAT(MakeCpuBackend({.simd_targets = HWY_SSE4}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("AVX2")));
#endif
}

int64_t ResidentPages() {
  int64_t size = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident;
}

TEST(CpuBackendTest, MemoryThatIsNotThereIsAnErrorAndUntouchedMemoryIsFree) {
  SKEIN_ASSERT_OK_AND_ASSIGN(auto backend, MakeCpuBackend({}));
  const int64_t rows = int64_t{1} << 25;
  Program program;
  program.weights = {{"large", {.rows = rows, .cols = rows}}};
  EXPECT_THAT(backend->AllocateWeights(program).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("weights"), HasSubstr("2251799813685248 bytes"))));
  KvSpec kv{.layers = 8, .kv_heads = 8, .head_dim = 128, .page_size = 16, .pages = 2048};
  const int64_t before = ResidentPages();
  SKEIN_ASSERT_OK_AND_ASSIGN(auto cache, backend->AllocateKv(kv));  // 2 GiB
  EXPECT_LT(ResidentPages() - before, 1000);
  kv.pages = int64_t{1} << 35;
  EXPECT_THAT(backend->AllocateKv(kv),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("a KV cache")));
}

TEST(CpuBackendTest, BadShapesAreErrors) {
  SKEIN_ASSERT_OK_AND_ASSIGN(auto backend, MakeCpuBackend({}));
  for (const auto& [spec, message] :
       {std::pair{WeightSpec{.rows = 0, .cols = 1}, "weight w: a weight of 0 x 1"},
        {WeightSpec{.rows = int64_t{1} << 40, .cols = int64_t{1} << 40}, "a weight of"},
        {WeightSpec{.rows = 1, .cols = 1, .dtype = DType::kI32}, "a weight of I32"}}) {
    Program program;
    program.weights = {{"w", spec}};
    EXPECT_THAT(backend->AllocateWeights(program).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }
  EXPECT_THAT(backend->AllocateKv({.layers = 1, .kv_heads = 1, .head_dim = 1, .page_size = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pages of 0 tokens")));
}

// Layers rotate by frequencies of their own. Two rows at once are rotated, appended and attended to
// one after the other, a row alone in one pass: the bits are the same.
TEST(CpuBackendTest, FusedOperationsRotateByTheirOwnFrequencies) {
  SKEIN_ASSERT_OK_AND_ASSIGN(auto backend, MakeCpuBackend({}));
  constexpr int kLayers = 2;
  constexpr int32_t kHeadDim = 4;
  constexpr int64_t kCols = 3 * kHeadDim;  // a query, a key and a value
  const float frequencies[kLayers][kHeadDim / 2] = {{1, 0.25f}, {0.5f, 2}};
  TestProgram program;
  program.kv_spec = {
      .layers = kLayers, .kv_heads = 1, .head_dim = kHeadDim, .page_size = 2, .pages = 1};
  BufferId qkv[kLayers];
  BufferId out[kLayers];
  for (int layer = 0; layer < kLayers; ++layer) {
    qkv[layer] = program.AddBuffer(kCols);
    out[layer] = program.AddBuffer(kHeadDim);
    const WeightId turns =
        program.AddVector({std::begin(frequencies[layer]), std::end(frequencies[layer])});
    program.Add(RopeAppendKvOp{qkv[layer], 1, 1, kHeadDim, turns, layer});
    program.Add(AttentionOp{qkv[layer], 1, 1, kHeadDim, /*scale=*/0.5f, layer, out[layer]});
  }
  const std::vector<float> rows = RandomFloats(/*seed=*/5, 2 * kCols);
  const std::vector<float> first(rows.begin(), rows.begin() + kCols);
  const std::vector<float> second(rows.begin() + kCols, rows.end());

  program.Bind(*backend);
  for (const BufferId id : qkv) program.Set(id, rows);
  SKEIN_ASSERT_OK(program.Run(BatchOf({{.pages = {0}, .token_ids = {0, 0}}})));
  std::vector<float> rotated[kLayers];
  std::vector<float> attended[kLayers];
  for (int layer = 0; layer < kLayers; ++layer) {
    rotated[layer] = program.Get(qkv[layer], 2);
    attended[layer] = program.Get(out[layer], 2);
  }
  EXPECT_NE(rotated[0], rotated[1]);

  program.Bind(*backend);
  for (int32_t position = 0; position < 2; ++position) {
    for (const BufferId id : qkv) program.Set(id, position == 0 ? first : second);
    SKEIN_ASSERT_OK(
        program.Run(BatchOf({{.pages = {0}, .first_position = position, .token_ids = {0}}})));
    for (int layer = 0; layer < kLayers; ++layer) {
      EXPECT_TRUE(
          std::ranges::equal(program.Get(qkv[layer], 1),
                             absl::MakeSpan(rotated[layer]).subspan(position * kCols, kCols)));
      EXPECT_TRUE(std::ranges::equal(
          program.Get(out[layer], 1),
          absl::MakeSpan(attended[layer]).subspan(position * kHeadDim, kHeadDim)));
    }
  }
}

TEST(ReadProbeTest, GivesARate) {
  SKEIN_ASSERT_OK_AND_ASSIGN(ReadProbe probe, ReadProbe::Create(2, (int64_t{64} << 20) + 1));
  EXPECT_EQ(probe.bytes(), int64_t{64} << 20);
  const double rate = probe.Pass();
  // A rate below an old disk's or above any memory's is no measurement.
  EXPECT_GT(rate, 50e6);
  EXPECT_LT(rate, 50e12);
  EXPECT_GT(probe.Pass(int64_t{8} << 20, /*begin=*/int64_t{60} << 20), 50e6);  // what is left
  EXPECT_EQ(probe.Pass(int64_t{8} << 20, /*begin=*/int64_t{64} << 20), 0);
}

TEST(MeasureArithmeticTest, GivesARate) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const double one, MeasureArithmetic(1));
  // A rate below the nineties' CPUs' or above any core's is no measurement.
  EXPECT_GT(one, 50e6);
  EXPECT_LT(one, 1e12);
}

TEST(ReadProbeTest, NamesWhatCannotBe) {
  EXPECT_THAT(ReadProbe::Create(0, 1 << 20),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 threads")));
  EXPECT_THAT(ReadProbe::Create(1, int64_t{1} << 60),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("reading")));
}

}  // namespace
}  // namespace skein::kernels

// Property tests over chunks, pages, companions in the batch, threads, instruction sets and shards:
// a row's bits depend on its own sequence only, and sums do not depend on the layout.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/harness.h"

namespace skein::kernels {
namespace {

// Has two layers with every operation, and sizes that no vector divides.
struct Model {
  static constexpr int64_t kHidden = 44, kFfn = 150, kVocabulary = 301;
  static constexpr int32_t kHeads = 6, kKvHeads = 2, kHeadDim = 18, kLayers = 2;
  static constexpr int64_t kInner = 37;
  static constexpr int32_t kExperts = 5, kChosen = 2;

  Model() {
    const BufferId x = p.AddBuffer(kHidden);
    const BufferId y = p.AddBuffer(kHidden);
    const BufferId qkv = p.AddBuffer((kHeads + 2 * kKvHeads) * kHeadDim);
    const BufferId attended = p.AddBuffer(kHeads * kHeadDim);
    const BufferId gate_up = p.AddBuffer(2 * kFfn);
    const BufferId activated = p.AddBuffer(kFfn);
    const BufferId router = p.AddBuffer(kExperts);
    const BufferId routes = p.AddBuffer(2 * kChosen);
    const BufferId slots = p.AddBuffer(kChosen * kHidden);
    const BufferId gate = p.AddBuffer(1);
    const BufferId z = p.AddBuffer(kHidden);
    const BufferId gathered = p.AddBuffer(kHidden, BufferSpec::Rows::kOutputs);
    logits = p.AddBuffer(kVocabulary, BufferSpec::Rows::kOutputs);
    uint32_t seed = 100;
    const auto matrix = [&](int64_t rows, int64_t cols, DType dtype, int32_t blocks) {
      return p.AddWeight({.rows = rows, .cols = cols, .dtype = dtype, .inner_blocks = blocks},
                         RandomFloats(++seed, rows * cols, 0.3f));
    };
    const auto gain = [&] { return p.AddVector(RandomFloats(++seed, kHidden)); };
    const WeightId embedding = matrix(kVocabulary, kHidden, DType::kBF16, 1);
    const WeightId frequencies = p.AddVector({1, .5f, .25f, .125f, .1f, .05f, .02f, .01f, .001f});
    const WeightId few_frequencies = p.AddVector({1, .3f, .1f, .03f, .01f});
    p.Add(EmbedOp{embedding, 0, kVocabulary, x});
    p.Add(ScaleOp{x, 1.5f});
    p.Add(RmsNormOp{x, gain(), 1e-5f, y});
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      p.Add(MatMulOp{y, matrix(p.program.buffers[qkv].cols, kHidden, DType::kBF16, 1), qkv});
      p.Add(AddBiasOp{qkv, p.AddVector(RandomFloats(++seed, p.program.buffers[qkv].cols))});
      p.Add(QkNormOp{qkv, kHeads, kKvHeads, kHeadDim,
                     p.AddVector(RandomFloats(++seed, kHeadDim, 2)),
                     p.AddVector(RandomFloats(++seed, kHeadDim, 2)), 1e-5f});
      p.Add(RopeAppendKvOp{qkv, kHeads, kKvHeads, kHeadDim,
                           layer == 0 ? frequencies : few_frequencies, layer,
                           /*magnitude=*/layer == 0 ? 1.0f : 1.1f});
      p.Add(AttentionOp{qkv, kHeads, kKvHeads, kHeadDim, 0.25f, layer, attended,
                        /*window=*/layer == 0 ? 0 : 23, /*softcap=*/layer == 0 ? 0.0f : 4.0f});
      p.Add(MatMulOp{attended, matrix(kHidden, kHeads * kHeadDim, DType::kF16, 8), y});
      p.Add(AddRmsNormOp{x, y, gain(), 1e-5f, y});
      p.Add(MatMulOp{y, matrix(2 * kFfn, kHidden, DType::kBF16, 1), gate_up});
      p.Add(GluOp{gate_up, activated,
                  layer == 0 ? GateActivation::kSilu : GateActivation::kGeluTanh});
      p.Add(MatMulOp{activated, matrix(kHidden, kFfn, DType::kF32, 8), y});
      p.Add(AddRmsNormOp{x, y, gain(), 1e-5f, y});
      p.Add(MatMulOp{y, matrix(kExperts, kHidden, DType::kF32, 1), router});
      p.Add(RouteOp{router, kChosen, /*normalized=*/layer == 0, routes});
      const auto first = static_cast<WeightId>(p.program.weights.size());
      for (int32_t expert = 0; expert < kExperts; ++expert) {
        matrix(2 * kInner, kHidden, DType::kBF16, 1);
        matrix(kHidden, kInner, DType::kBF16, 8);
      }
      p.Add(ExpertsOp{y, routes, 0, kExperts, first, slots});
      p.Add(CombineExpertsOp{slots, routes, z});
      p.Add(MatMulOp{y, matrix(1, kHidden, DType::kF32, 1), gate});
      p.Add(AddGatedOp{gate, y, z});
      p.Add(AddRmsNormOp{x, z, gain(), 1e-5f, y});
    }
    p.Add(GatherRowsOp{y, gathered});
    p.Add(MatMulOp{gathered, embedding, logits});
    p.Add(SoftCapOp{logits, 5});
  }

  TestProgram p;
  BufferId logits;
};

constexpr int32_t kTokens = 70;

int32_t Token(int32_t sequence, int32_t position) {
  return (sequence * 131 + position * 37 + position * position) % Model::kVocabulary;
}

struct Layout {
  int64_t page_size;
  std::vector<int32_t> chunks;  // of sequence 0, adding up to kTokens
  int companions;               // other sequences, which come and go around it
  bool decode = false;          // the others, too, have one token a step
};

// Returns the logits of sequence 0 at every position.
std::vector<float> LogitsOf(Backend& backend, const Layout& layout, KvDType dtype) {
  Model model;
  const int64_t pages_each = (2 * kTokens + layout.page_size - 1) / layout.page_size;
  model.p.kv_spec = {.layers = Model::kLayers,
                     .kv_heads = Model::kKvHeads,
                     .head_dim = Model::kHeadDim,
                     .page_size = layout.page_size,
                     .pages = pages_each * (layout.companions + 1),
                     .dtype = dtype};
  model.p.Bind(backend);
  // The pages come in a random order.
  std::vector<int32_t> pages(model.p.kv_spec.pages);
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
  std::shuffle(pages.begin(), pages.end(), std::minstd_rand(layout.page_size));

  std::vector<int32_t> done(layout.companions + 1, 0);
  std::vector<float> logits;
  for (size_t step = 0; step < layout.chunks.size(); ++step) {
    std::vector<Chunk> chunks;
    int64_t rows_before = 0;
    for (int s = layout.companions; s >= 0; --s) {  // sequence 0 last, then first, ...
      const int sequence = step % 2 == 0 ? s : layout.companions - s;
      const auto count = sequence == 0   ? layout.chunks[step]
                         : layout.decode ? 1
                                         : static_cast<int32_t>((step + sequence) % 4);
      if (count == 0 || done[sequence] + count > 2 * kTokens) continue;
      Chunk chunk{.first_position = done[sequence]};
      chunk.pages.assign(pages.begin() + sequence * pages_each,
                         pages.begin() + (sequence + 1) * pages_each);
      for (int32_t i = 0; i < count; ++i) {
        chunk.token_ids.push_back(Token(sequence, done[sequence] + i));
      }
      done[sequence] += count;
      if (sequence == 0) {
        rows_before = 0;
        for (const Chunk& c : chunks) rows_before += static_cast<int64_t>(c.token_ids.size());
      }
      chunks.push_back(std::move(chunk));
    }
    const Batch batch = BatchOf(chunks);
    SKEIN_EXPECT_OK(model.p.Run(batch));
    const auto all = model.p.Get(model.logits, batch.outputs());
    const auto first = all.begin() + rows_before * Model::kVocabulary;
    logits.insert(logits.end(), first, first + layout.chunks[step] * Model::kVocabulary);
  }
  return logits;
}

const std::vector<Layout>& Layouts() {
  static const auto& layouts = *new std::vector<Layout>{
      {16, {kTokens}, 0},
      {16, std::vector<int32_t>(kTokens, 1), 0},
      {1, {3, 30, 1, 1, 35}, 0},
      {5, {64, 1, 1, 1, 1, 1, 1}, 3},
      {32, {7, 13, 1, 29, 20}, 2},
      {48, {1, 69}, 4},
      // These rows need none of the others, and are so many that what they attend to is fetched
      // ahead.
      {16, std::vector<int32_t>(kTokens, 1), 6, true},
  };
  return layouts;
}

class BitsTest : public testing::TestWithParam<std::tuple<BackendCase, KvDTypeCase>> {};

TEST_P(BitsTest, ARowDependsOnItsSequenceOnly) {
  const auto& [backend_case, kv] = GetParam();
  const auto backend = backend_case.make();
  const auto expected = LogitsOf(*backend, Layouts()[0], kv.dtype);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kTokens * Model::kVocabulary));
  for (size_t i = 1; i < Layouts().size(); ++i) {
    EXPECT_TRUE(SameBits(LogitsOf(*backend, Layouts()[i], kv.dtype), expected)) << "layout " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, BitsTest,
                         testing::Combine(testing::ValuesIn(AllBackends()),
                                          testing::ValuesIn(KvDTypes())),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + std::get<1>(info.param).name;
                         });

class CpuBitsTest : public testing::TestWithParam<KvDTypeCase> {};

TEST_P(CpuBitsTest, ThreadsAndInstructionSetsAgree) {
  const KvDType dtype = GetParam().dtype;
  std::vector<float> expected;
  int sets = 0;
  for (int64_t target : {int64_t{HWY_AVX2}, int64_t{HWY_AVX3}, int64_t{0}}) {
    if (target != 0 && (hwy::SupportedTargets() & target) == 0) continue;
    std::printf("compared: %s\n", target == 0 ? "the best one" : hwy::TargetName(target));
    if (target != 0) ++sets;
    for (int threads : {1, 2, 3}) {
      SKEIN_ASSERT_OK_AND_ASSIGN(auto backend,
                                 MakeCpuBackend({.threads = threads, .simd_targets = target}));
      const auto logits = LogitsOf(*backend, Layouts()[4], dtype);
      if (expected.empty()) expected = logits;
      EXPECT_TRUE(SameBits(logits, expected)) << threads << " threads, target " << target;
    }
  }
  EXPECT_GE(sets, __builtin_cpu_supports("avx512vl") ? 2 : 1);
  // In other dtypes a key that was rounded to another neighbour outweighs all errors of sums.
  if (dtype != KvDType::kF32) return;
  const auto reference = MakeReferenceBackend();
  const auto oracle = LogitsOf(*reference, Layouts()[4], dtype);
  // Some two hundred sums of up to 150 terms lie behind a logit of about 1: six standard deviations
  // of as many roundings, whose signs are random.
  const double roundings = 6 * std::sqrt(200.0 * 150);
  EXPECT_TRUE(Close(expected, oracle, std::vector<float>(oracle.size(), 1.0f), roundings));
}

INSTANTIATE_TEST_SUITE_P(KvDTypes, CpuBitsTest, testing::ValuesIn(KvDTypes()),
                         [](const auto& info) { return info.param.name; });

// Returns the product of one shard of the inner dimension.
std::vector<float> Product(Backend& backend, const std::vector<float>& in, int64_t rows,
                           const std::vector<float>& matrix, int64_t outputs, int32_t blocks) {
  TestProgram p;
  const int64_t cols = static_cast<int64_t>(matrix.size()) / outputs;
  const BufferId x = p.AddBuffer(cols);
  const BufferId y = p.AddBuffer(outputs);
  p.Add(MatMulOp{
      x,
      p.AddWeight({.rows = outputs, .cols = cols, .dtype = DType::kBF16, .inner_blocks = blocks},
                  matrix),
      y});
  p.Bind(backend);
  p.Set(x, in);
  SKEIN_EXPECT_OK(p.Run(BatchOf({{{0}, 0, std::vector<int32_t>(rows, 0)}})));
  return p.Get(y, rows);
}

class RowsTest : public testing::TestWithParam<BackendCase> {};

// Sweeps numbers of rows that are cut in different ways, and columns that do not fit in a cache.
TEST_P(RowsTest, AProductDoesNotDependOnItsNeighbours) {
  constexpr int64_t kCols = 2500;
  constexpr int64_t kOutputs = 66;
  constexpr int64_t kMaxRows = 80;
  const auto backend = GetParam().make();
  const auto in = RandomFloats(1, kMaxRows * kCols);
  const auto matrix = RandomFloats(2, kOutputs * kCols);
  const auto all = Product(*backend, in, kMaxRows, matrix, kOutputs, 2);
  for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 48, 49}) {
    const int64_t first = kMaxRows - rows;
    const auto some =
        Product(*backend, {in.begin() + first * kCols, in.end()}, rows, matrix, kOutputs, 2);
    EXPECT_TRUE(SameBits(some, {all.begin() + first * kOutputs, all.end()})) << rows << " rows";
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, RowsTest, testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param.name; });

std::vector<float> Columns(const std::vector<float>& values, int64_t cols, int64_t begin,
                           int64_t end) {
  std::vector<float> part;
  for (size_t row = 0; row < values.size(); row += cols) {
    part.insert(part.end(), values.begin() + row + begin, values.begin() + row + end);
  }
  return part;
}

class ShardsTest : public testing::TestWithParam<BackendCase> {};

TEST_P(ShardsTest, SumsDoNotDependOnTheirNumber) {
  constexpr int64_t kRows = 7;
  constexpr int64_t kOutputs = 70;
  const auto backend = GetParam().make();
  for (int64_t cols : {8, 64, 104, 344}) {
    const auto in = RandomFloats(1, kRows * cols);
    const auto matrix = RandomFloats(2, kOutputs * cols);
    const auto whole = Product(*backend, in, kRows, matrix, kOutputs, 8);
    for (int64_t shards : {2, 4, 8}) {
      std::vector<std::vector<float>> sums;
      for (int64_t s = 0; s < shards; ++s) {
        const int64_t begin = s * cols / shards;
        const int64_t end = (s + 1) * cols / shards;
        sums.push_back(Product(*backend, Columns(in, cols, begin, end), kRows,
                               Columns(matrix, cols, begin, end), kOutputs,
                               static_cast<int32_t>(8 / shards)));
      }
      // Neighbours are joined, as the all-reduce does.
      for (int64_t step = 1; step < shards; step *= 2) {
        for (int64_t s = 0; s < shards; s += 2 * step) {
          for (size_t i = 0; i < whole.size(); ++i) sums[s][i] += sums[s + step][i];
        }
      }
      EXPECT_TRUE(SameBits(sums[0], whole)) << cols << " columns, " << shards << " shards";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ShardsTest, testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::kernels

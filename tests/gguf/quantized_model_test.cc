// Quantised models as Q4_K_M files mix their types: every layout gives equal bits, which are near
// those of the floats that the blocks stand for.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/random_blocks.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"
#include "model/config/model_config.h"
#include "model/format/gguf_bytes.h"
#include "parallel/plan/shard.h"
#include "tests/engine/golden_logits.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHidden = 1024;  // 4 superblocks
constexpr int64_t kFfn = 2816;     // 11
constexpr int64_t kHeads = 16;
constexpr int64_t kKvHeads = 4;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kVocabulary = 320;

// Blocks whose values have a mean square of `size` squared.
std::vector<std::byte> BlocksOf(uint32_t seed, DType dtype, int64_t elements, double size) {
  const int64_t blocks = elements / BlockElements(dtype);
  std::vector<float> values(elements);
  const std::vector<std::byte> probe = RandomBlocks(seed, dtype, blocks);
  ConvertToFloat(dtype, probe.data(), elements, values.data());
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  const double now = std::sqrt(squares / static_cast<double>(elements));
  return RandomBlocks(seed, dtype, blocks, static_cast<float>(size / now));
}

// Types by the tensors' last names in GGUF.
struct Types {
  DType embedding, q, k, v, o, gate, up, down, output;
};

// Q6_K is half of what reads activations, and of the values', as in Q4_K_M.
Types TypesOfLayer(const Types& types, int64_t layer) {
  Types of = types;
  if (layer % 2 == 1) std::swap(of.v, of.down);
  return of;
}

class ModelFile {
 public:
  // As it is, or as the floats that its blocks stand for.
  ModelFile(const Types& types, bool as_floats, int64_t layers = 2) : as_floats_(as_floats) {
    gguf_.AddString("general.architecture", "llama")
        .AddUint32("llama.vocab_size", kVocabulary)
        .AddUint32("llama.context_length", 512)
        .AddUint32("llama.embedding_length", kHidden)
        .AddUint32("llama.feed_forward_length", kFfn)
        .AddUint32("llama.block_count", static_cast<uint32_t>(layers))
        .AddUint32("llama.attention.head_count", kHeads)
        .AddUint32("llama.attention.head_count_kv", kKvHeads)
        .AddUint32("llama.rope.dimension_count", kHeadDim)
        .AddFloat32("llama.rope.freq_base", 10000)
        .AddFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    Matrix("token_embd", types.embedding, kVocabulary, kHidden);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const Types of = TypesOfLayer(types, layer);
      const std::string name = absl::StrCat("blk.", layer, ".");
      Norm(name + "attn_norm");
      Matrix(name + "attn_q", of.q, kHeads * kHeadDim, kHidden);
      Matrix(name + "attn_k", of.k, kKvHeads * kHeadDim, kHidden);
      Matrix(name + "attn_v", of.v, kKvHeads * kHeadDim, kHidden);
      Matrix(name + "attn_output", of.o, kHidden, kHeads * kHeadDim);
      Norm(name + "ffn_norm");
      Matrix(name + "ffn_gate", of.gate, kFfn, kHidden);
      Matrix(name + "ffn_up", of.up, kFfn, kHidden);
      Matrix(name + "ffn_down", of.down, kHidden, kFfn);
    }
    Norm("output_norm");
    Matrix("output", types.output, kVocabulary, kHidden);
  }

  std::string Write(const std::string& name) const {
    std::string path = ::testing::TempDir() + "/" + name + ".gguf";
    std::ofstream(path, std::ios::binary) << gguf_.Build();
    return path;
  }

 private:
  void Matrix(const std::string& name, DType dtype, int64_t rows, int64_t cols) {
    std::vector<std::byte> bytes = BlocksOf(++seed_, dtype, rows * cols, 0.05);
    if (as_floats_) {
      std::vector<float> values(rows * cols);
      ConvertToFloat(dtype, bytes.data(), rows * cols, values.data());
      const auto* first = reinterpret_cast<const std::byte*>(values.data());
      bytes.assign(first, first + values.size() * sizeof(float));
      dtype = DType::kF32;
    }
    gguf_.AddTensor(name + ".weight", {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)},
                    model::GgmlType(dtype),
                    {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  void Norm(const std::string& name) {
    std::string gains;
    for (int64_t i = 0; i < kHidden; ++i) gains += model::LittleEndian(1.0f);
    gguf_.AddTensor(name + ".weight", {kHidden}, model::GgmlType(DType::kF32), gains);
  }

  const bool as_floats_;
  uint32_t seed_ = 0;
  model::GgufBytes gguf_;
};

worker::GoldenCase CaseOf(const std::string& model) {
  worker::GoldenCase golden = {.model = model};
  for (int32_t i = 0; i < 40; ++i) golden.prompt.push_back(i * 37 % kVocabulary);
  golden.decode = {7, 301, 44};
  return golden;
}

worker::Rows Logits(const std::string& model, const plan::Layout& layout, bool exact,
                    bool reference = false) {
  const worker::GoldenRun run = {.layout = layout, .exact = exact, .make_backend = [reference] {
                                   return reference ? kernels::MakeReferenceBackend()
                                                    : *kernels::MakeCpuBackend({.threads = 1});
                                 }};
  absl::StatusOr<worker::Rows> rows = worker::RunGoldenCase(CaseOf(model), run);
  SKEIN_EXPECT_OK(rows);
  return rows.ok() ? *std::move(rows) : worker::Rows();
}

constexpr Types kQ4_K_M = {DType::kQ4_K, DType::kQ4_K, DType::kQ4_K, DType::kQ6_K, DType::kQ4_K,
                           DType::kQ4_K, DType::kQ4_K, DType::kQ4_K, DType::kQ6_K};

TEST(QuantizedModelTest, LayoutsGiveEqualBitsNearThoseOfFloats) {
  const std::string path = ModelFile(kQ4_K_M, /*as_floats=*/false).Write("q4_k_m");
  const std::string floats = ModelFile(kQ4_K_M, /*as_floats=*/true).Write("floats");
  for (const bool exact : {true, false}) {
    SCOPED_TRACE(exact);
    const worker::Rows one = Logits(path, {1, 1, 1}, exact);
    ASSERT_EQ(one.size(), 4u);
    for (const plan::Layout& layout : {plan::Layout{2, 1, 1}, plan::Layout{4, 1, 1},
                                       plan::Layout{1, 2, 1}, plan::Layout{2, 2, 1}}) {
      EXPECT_EQ(Logits(path, layout, exact), one) << layout.ToString();
    }
    // Where the last bits of floats differ, some are rounded to other integers.
    EXPECT_LE(worker::RelativeError(one, Logits(path, {1, 1, 1}, exact, /*reference=*/true)),
              exact ? 1e-4 : 0.05);
    // Eight bits of activations are no exact floats.
    const double error = worker::RelativeError(one, Logits(floats, {1, 1, 1}, exact));
    EXPECT_LE(error, exact ? 1e-5 : 0.15);
    EXPECT_TRUE(exact || error > 1e-3) << error;
  }
}

TEST(QuantizedModelTest, EveryTypeIsRun) {
  for (const DType dtype : QuantizedDTypes()) {
    if (dtype >= DType::kFp8) continue;  // no type of GGUF
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    const Types types = {dtype, dtype, dtype, dtype, dtype, dtype, dtype, dtype, dtype};
    const std::string path = ModelFile(types, /*as_floats=*/false, /*layers=*/1).Write("one_type");
    const worker::Rows one = Logits(path, {1, 1, 1}, /*exact=*/true);
    EXPECT_EQ(Logits(path, {2, 1, 1}, /*exact=*/true), one);
    const std::string floats =
        ModelFile(types, /*as_floats=*/true, /*layers=*/1).Write("one_type_floats");
    EXPECT_LE(worker::RelativeError(one, Logits(floats, {1, 1, 1}, /*exact=*/true)), 1e-5);
    EXPECT_LE(worker::RelativeError(Logits(path, {2, 1, 1}, /*exact=*/false), one), 0.15);
  }
}

TEST(QuantizedModelTest, ShardsFallBetweenBlocks) {
  const std::string path = ModelFile(kQ4_K_M, /*as_floats=*/false).Write("shards");
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::ModelConfig config, model::LoadModelConfig(path));
  EXPECT_EQ(config.stored.mlp_block, 256);
  EXPECT_EQ(config.stored.attention_block, 256);
  EXPECT_EQ(config.DTypeOf("model.layers.0.mlp.down_proj.weight"), DType::kQ4_K);
  EXPECT_EQ(config.DTypeOf("model.layers.1.mlp.down_proj.weight"), DType::kQ6_K);
  SKEIN_ASSERT_OK_AND_ASSIGN(const plan::ShardSpec first, plan::MakeShard(config, 2, 0));
  SKEIN_ASSERT_OK_AND_ASSIGN(const plan::ShardSpec second, plan::MakeShard(config, 2, 1));
  EXPECT_EQ(first.ffn, (Range{0, 5 * 256}));
  EXPECT_EQ(second.ffn, (Range{5 * 256, 11 * 256}));
  // Of 11 blocks sums have 1, 1, 2, 1 and 1, 2, 1, 2.
  EXPECT_EQ(first.mlp_bounds, (std::vector<int64_t>{0, 256, 512, 1024, 1280}));
  EXPECT_EQ(second.mlp_bounds, (std::vector<int64_t>{0, 256, 768, 1024, 1536}));
  // Of 4 blocks every second sum has none.
  EXPECT_EQ(second.attention_bounds, (std::vector<int64_t>{0, 0, 256, 256, 512}));
  EXPECT_THAT(plan::CheckTensorParallel(config, 8),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("tp=8: 128 columns of a shard's heads cut a block of 256 "
                                 "quantised weights; possible are tp=1, 2, 4")));
}

}  // namespace
}  // namespace skein::testing

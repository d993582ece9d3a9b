// Each rank reads only its shard, and holds little more than that in memory while it does: on a
// folder of more than 2 GiB.
#include <cstdio>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "model/config/model_config.h"
#include "model/format/safetensors_writer.h"
#include "model/synthetic/synthetic.h"

namespace skein {
namespace {

constexpr int64_t kAllowedExtra = 300'000'000;
// Of what was read: norms are kept in float32, and little else grows.
constexpr double kPacked = 1.05;

model::ModelConfig Config() {
  return {.architecture = "LlamaForCausalLM",
          .vocab_size = 32000,
          .hidden_size = 2048,
          .intermediate_size = 8192,
          .num_layers = 16,
          .num_heads = 32,
          .num_kv_heads = 8,
          .head_dim = 64,
          .max_position_embeddings = 2048};
}

class ShardMemoryTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = ::testing::TempDir() + "/two-gib";
    const auto weights = model::MakeSyntheticWeights(Config(), "synthetic:two-gib");
    SKEIN_ASSERT_OK(model::WriteModelFolder(Config(), *weights, folder_, int64_t{1} << 30));
    int64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      bytes += static_cast<int64_t>(entry.file_size());
    }
    ASSERT_GE(bytes, int64_t{2} << 30);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }

  struct Result {
    long long bytes_read = 0, packed = 0, baseline = 0, hwm = 0;
  };

  static Result Probe(int tensor, int shard, int pipeline, int stage) {
    Result r;
    const std::string command = absl::StrCat("tests/loader/shard_probe '", folder_, "' ", tensor,
                                             " ", shard, " ", pipeline, " ", stage);
    FILE* pipe = popen(command.c_str(), "r");
    EXPECT_EQ(
        std::fscanf(pipe, "%lld %lld %lld %lld", &r.bytes_read, &r.packed, &r.baseline, &r.hwm), 4);
    EXPECT_EQ(pclose(pipe), 0);
    std::printf("tp %d/%d pp %d/%d: read %.1f MB, packed %.1f MB, VmHWM %.1f MB above %.1f MB\n",
                shard, tensor, stage, pipeline, r.bytes_read / 1e6, r.packed / 1e6,
                (r.hwm - r.baseline) / 1e6, r.baseline / 1e6);
    return r;
  }

  static std::string folder_;
};

std::string ShardMemoryTest::folder_;

// Elements of a layer, by hand: q, k, v and o, gate, up and down; norms apart.
constexpr int64_t kAttention = 2048 * (2048 + 512 + 512) + 2048 * 2048;
constexpr int64_t kMlp = 3 * 2048 * 8192;
constexpr int64_t kNorms = 2 * 2048;
constexpr int64_t kVocabulary = 32000 * 2048;

TEST_F(ShardMemoryTest, TensorParallel) {
  const int64_t want = 2 * (16 * ((kAttention + kMlp) / 4 + kNorms) + 2 * kVocabulary / 4 + 2048);
  for (int shard = 0; shard < 4; ++shard) {
    const Result r = Probe(4, shard, 1, 0);
    EXPECT_EQ(r.bytes_read, want);
    EXPECT_LE(r.packed, want * kPacked);
    EXPECT_LE(r.hwm, r.baseline + r.packed + kAllowedExtra);
  }
}

TEST_F(ShardMemoryTest, PipelineParallel) {
  for (int stage = 0; stage < 4; ++stage) {
    int64_t want = 4 * (kAttention + kMlp + kNorms);
    if (stage == 0) want += kVocabulary;
    if (stage == 3) want += kVocabulary + 2048;
    const Result r = Probe(1, 0, 4, stage);
    EXPECT_EQ(r.bytes_read, 2 * want);
    EXPECT_LE(r.packed, 2 * want * kPacked);
    EXPECT_LE(r.hwm, r.baseline + r.packed + kAllowedExtra);
  }
}

}  // namespace
}  // namespace skein

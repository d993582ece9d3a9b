// Architectures in files that llama.cpp's converter wrote (make_architecture_files.py): they mean
// what their folders mean, but for what such files cannot say.
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/range.h"
#include "base/test_util.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/config/check_weights.h"
#include "model/config/model_config.h"
#include "model/format/open.h"
#include "tests/engine/golden_logits.h"
#include "tests/gguf/read_tensor.h"

namespace skein::testing {
namespace {

using model::ModelConfig;
using model::RopeConfig;

constexpr char kModels[] = "tests/golden/models/";

std::string FileOf(const std::string& name) { return "tests/gguf/architectures/" + name + ".gguf"; }

struct FileCase {
  std::string name;
  // Takes from the folder's configuration what the file cannot say; null: it says all.
  std::function<void(ModelConfig&)> forget;
};

class ArchitectureFilesTest : public ::testing::TestWithParam<FileCase> {
 protected:
  const std::string folder_ = kModels + GetParam().name;
  const std::string file_ = FileOf(GetParam().name);
};

// Numbers are floats in files.
void Round(RopeConfig& rope) {
  const auto round = [](double& value) { value = static_cast<float>(value); };
  round(rope.theta);
  round(rope.magnitude);
  for (double& divisor : rope.short_divisors) round(divisor);
  for (double& divisor : rope.long_divisors) round(divisor);
}

TEST_P(ArchitectureFilesTest, ConfigurationIsTheFolders) {
  SKEIN_ASSERT_OK_AND_ASSIGN(ModelConfig want, model::LoadModelConfig(folder_));
  SKEIN_ASSERT_OK_AND_ASSIGN(ModelConfig got, model::LoadModelConfig(file_));
  if (GetParam().forget) GetParam().forget(want);
  EXPECT_NEAR(got.rms_norm_eps, want.rms_norm_eps, 1e-12);
  want.rms_norm_eps = got.rms_norm_eps;
  for (double ModelConfig::* value :
       {&ModelConfig::embedding_scale, &ModelConfig::residual_scale, &ModelConfig::logits_scale}) {
    EXPECT_NEAR(got.*value, want.*value, 1e-7);
    want.*value = got.*value;
  }
  EXPECT_NEAR(got.attention_scale.value_or(0), want.attention_scale.value_or(0), 1e-7);
  want.attention_scale = got.attention_scale;
  EXPECT_EQ(got.rope.RotaryDim(got.head_dim), want.rope.RotaryDim(want.head_dim));
  want.rope.rotary_share = got.rope.rotary_share;
  Round(want.rope);
  Round(got.rope);
  want.norm_offset = 0;       // stored gains have it
  want.bos_token_id.reset();  // the files have no vocabulary
  want.eos_token_ids.clear();
  EXPECT_EQ(got, want);
}

TEST_P(ArchitectureFilesTest, TensorsAreTheFolders) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const ModelConfig config, model::LoadModelConfig(folder_));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto folder, model::OpenTensorSource(folder_));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto file, model::OpenTensorSource(file_));
  SKEIN_EXPECT_OK(model::CheckWeights(config, *file).status());
  ASSERT_EQ(file->tensors().size(), folder->tensors().size());
  for (size_t i = 0; i < folder->tensors().size(); ++i) {
    const model::TensorInfo& want = folder->tensors()[i];
    const model::TensorInfo& got = file->tensors()[i];
    SCOPED_TRACE(want.name);
    ASSERT_EQ(got.name, want.name);
    ASSERT_EQ(got.shape, want.shape);
    std::vector<float> values = Values(*folder, want);
    if (want.name.find("norm") != std::string::npos) {
      for (float& value : values) value += static_cast<float>(config.norm_offset);
    }
    EXPECT_EQ(Values(*file, got), values);
  }
}

// Of files that say all.
TEST_P(ArchitectureFilesTest, LogitsAreThoseOfTransformers) {
  int cases = 0;
  for (worker::GoldenCase golden : worker::ReadArchitectureCases()) {
    if (GetParam().forget || golden.model != folder_) continue;
    ++cases;
    golden.model = file_;
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const worker::Rows rows,
        worker::RunGoldenCase(golden, {.layout = {2, 2, 1},
                                       .make_backend = []() -> std::unique_ptr<kernels::Backend> {
                                         return *kernels::MakeCpuBackend({.threads = 2});
                                       }}));
    EXPECT_LE(worker::RelativeError(rows, golden.logits), 1e-4);
  }
  EXPECT_EQ(cases > 0, !GetParam().forget);
}

INSTANTIATE_TEST_SUITE_P(
    All, ArchitectureFilesTest,
    ::testing::Values(
        FileCase{"llama-biases",
                 [](ModelConfig& config) {
                   config.rope = {};
                   config.max_position_embeddings = 64;
                 }},
        FileCase{"mistral",
                 [](ModelConfig& config) {
                   config.architecture = "LlamaForCausalLM";
                   config.windows.clear();
                 }},
        FileCase{"qwen2", [](ModelConfig& config) { config.windows.clear(); }},
        FileCase{"qwen3", nullptr}, FileCase{"phi3", nullptr},
        // Attention divides by head_dim in models of all numbers of layers but one.
        FileCase{"gemma2",
                 [](ModelConfig& config) { config.attention_scale = 1.0 / std::sqrt(32.0); }},
        // One layer in six attends to everything.
        FileCase{"gemma3", [](ModelConfig& config) { config.windows = {32, 32, 32}; }},
        FileCase{"granite", nullptr},
        // One layer in four is not rotated.
        FileCase{"smollm3", [](ModelConfig& config) { config.unrotated = {false, false, false}; }},
        FileCase{"mixtral", nullptr}, FileCase{"qwen2-moe", nullptr},
        FileCase{"qwen3-moe", nullptr}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::erase(name, '-');
      return name;
    });

}  // namespace
}  // namespace skein::testing

// Models as GGUF files: what is read from them is what their folders hold, and logits are those of
// transformers.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "base/test_util.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/config/model_config.h"
#include "model/format/identity.h"
#include "model/format/open.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/engine/golden_logits.h"
#include "tests/gguf/gguf_of_folder.h"

namespace skein::testing {
namespace {

constexpr char kBard[] = "checkpoints/bard";

// The file of a folder, written once.
std::string GgufOf(const std::string& folder) {
  const std::string path =
      ::testing::TempDir() + "/" + absl::StrReplaceAll(folder, {{"/", "-"}}) + ".gguf";
  if (!std::ifstream(path)) SKEIN_EXPECT_OK(WriteGgufOfFolder(folder, path));
  return path;
}

std::string Bytes(const model::TensorSource& source, const model::TensorInfo& tensor,
                  const std::vector<Range>& slice) {
  int64_t elements = 1;
  for (const Range& range : slice) elements *= range.size();
  std::string bytes(static_cast<size_t>(DTypeBytes(tensor.dtype, elements)), '\0');
  SKEIN_EXPECT_OK(source.Read(
      tensor, slice, absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size())));
  return bytes;
}

TEST(GgufModelTest, ConfigurationIsTheFolders) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::ModelConfig folder, model::LoadModelConfig(kBard));
  SKEIN_ASSERT_OK_AND_ASSIGN(model::ModelConfig file, model::LoadModelConfig(GgufOf(kBard)));
  EXPECT_NEAR(file.rms_norm_eps, folder.rms_norm_eps, 1e-12);  // a float in the file
  file.rms_norm_eps = folder.rms_norm_eps;
  EXPECT_EQ(file, folder);
}

TEST(GgufModelTest, SlicesAreTheFolders) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto folder, model::OpenTensorSource(kBard));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto file, model::OpenTensorSource(GgufOf(kBard)));
  ASSERT_EQ(file->tensors().size(), folder->tensors().size());
  for (size_t i = 0; i < folder->tensors().size(); ++i) {
    const model::TensorInfo& want = folder->tensors()[i];
    const model::TensorInfo& got = file->tensors()[i];
    SCOPED_TRACE(want.name);
    EXPECT_EQ(got.name, want.name);
    EXPECT_EQ(got.shape, want.shape);
    if (want.shape.size() == 1) {
      EXPECT_EQ(got.dtype, DType::kF32);  // a norm
      continue;
    }
    const Range rows{0, want.shape[0]};
    const Range cols{0, want.shape[1]};
    // Whole, a part that begins and ends inside of heads, and some columns.
    for (const std::vector<Range>& slice :
         {std::vector<Range>{rows, cols}, {{37, 101}, cols}, {{63, 65}, {8, 24}}}) {
      EXPECT_EQ(Bytes(*file, got, slice), Bytes(*folder, want, slice));
    }
  }
}

TEST(GgufModelTest, TokenizerIsTheFolders) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto folder, model::LoadTokenizer(kBard));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto file, model::LoadTokenizer(GgufOf(kBard)));
  ASSERT_EQ(file->vocab_size(), folder->vocab_size());
  for (int32_t id = -1; id <= folder->vocab_size(); ++id) {
    EXPECT_EQ(file->TokenBytes(id), folder->TokenBytes(id)) << id;
    EXPECT_EQ(file->IsSpecial(id), folder->IsSpecial(id)) << id;
  }
  for (const char* text : {"", " ", "ROMEO:\nO, speak again", "a<|endoftext|>b", "caf\u00e9 \u4e2d",
                           "123  456\r\n\r\n  x"}) {
    for (const bool special : {false, true}) {
      const model::EncodeOptions options = {.add_special_tokens = special,
                                            .parse_special = special};
      SKEIN_ASSERT_OK_AND_ASSIGN(const auto want, folder->Encode(text, options));
      SKEIN_ASSERT_OK_AND_ASSIGN(const auto got, file->Encode(text, options));
      EXPECT_EQ(got, want) << text;
    }
  }
}

// Of each model that has goldens: Llama 3's RoPE, split files, odd sizes.
TEST(GgufModelTest, LogitsAreThoseOfTransformers) {
  std::set<std::string> models;
  for (const plan::Layout& layout : {plan::Layout{1, 1, 1}, plan::Layout{2, 2, 1}}) {
    const worker::GoldenRun run = {.layout = layout,
                                   .make_backend = []() -> std::unique_ptr<kernels::Backend> {
                                     return *kernels::MakeCpuBackend({.threads = 2});
                                   }};
    for (worker::GoldenCase golden : worker::ReadGoldenCases()) {
      SCOPED_TRACE(golden.model);
      models.insert(golden.model);
      golden.model = GgufOf(golden.model);
      SKEIN_ASSERT_OK_AND_ASSIGN(const worker::Rows rows, worker::RunGoldenCase(golden, run));
      EXPECT_LE(worker::RelativeError(rows, golden.logits), 1e-4);
    }
  }
  EXPECT_EQ(models.size(), 5u);
}

// Another tokenizer in a file of the same tensors is another model.
TEST(GgufModelTest, IdentityKnowsTheMetadata) {
  const std::string path = GgufOf(kBard);
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto weights, model::OpenTensorSource(path));
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::string identity,
                             model::ComputeModelIdentity(path, *weights));
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const size_t at = bytes.find("gpt-2");
  ASSERT_NE(at, bytes.npos);
  bytes.replace(at, 5, "olmo ");
  std::filesystem::create_directories(::testing::TempDir() + "/other");
  const std::string other =
      ::testing::TempDir() + "/other/" + std::filesystem::path(path).filename().string();
  std::ofstream(other, std::ios::binary) << bytes;
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::string changed,
                             model::ComputeModelIdentity(other, *weights));
  EXPECT_NE(changed, identity);
}

}  // namespace
}  // namespace skein::testing

// Models as Skein quantises them: which types tensors get, against what llama.cpp's quantiser gives
// (make_recipe_types.py), and what the files then hold.
#include "model/quantize/quantize.h"

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/range.h"
#include "base/test_util.h"
#include "model/config/model_config.h"
#include "model/convert/convert.h"
#include "model/format/gguf.h"
#include "model/quantize/importance.h"
#include "model/quantize/recipes.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/gguf/read_tensor.h"

namespace skein::testing {
namespace {

using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kBard[] = "checkpoints/bard";
constexpr char kMixtral[] = "tests/gguf/architectures/mixtral.gguf";

// "Q6_K*4 Q4_K*28" as a type for each layer.
std::vector<std::string> TypesOf(const std::string& runs) {
  std::vector<std::string> types;
  for (const absl::string_view run : absl::StrSplit(runs, ' ')) {
    const std::vector<std::string> parts = absl::StrSplit(run, '*');
    int count = 0;
    EXPECT_TRUE(absl::SimpleAtoi(parts.at(1), &count));
    types.insert(types.end(), static_cast<size_t>(count), parts[0]);
  }
  return types;
}

TEST(RecipesTest, TypesAreThoseOfAnotherQuantiser) {
  const json models = json::parse(std::ifstream("tests/gguf/recipe_types.json"));
  ASSERT_EQ(models.size(), 8u);
  int64_t compared = 0;
  for (const auto& [name, entry] : models.items()) {
    const json& facts = entry["facts"];
    const model::RecipeFacts of = {.layers = facts["layers"],
                                   .heads = facts["heads"],
                                   .kv_heads = facts["kv"],
                                   .experts = facts["experts"],
                                   .tied = facts["tied"]};
    ASSERT_EQ(entry["recipes"].size(), model::Recipes().size());
    for (const model::Recipe& recipe : model::Recipes()) {
      const json& want = entry["recipes"].at(std::string(recipe.name));
      for (const auto& [tensor, runs] : want.items()) {
        const bool layered = !entry["shapes"].contains(tensor);
        const std::vector<std::string> types = TypesOf(runs);
        ASSERT_EQ(types.size(), layered ? static_cast<size_t>(of.layers) : 1u);
        const std::vector<int64_t> shape =
            entry["shapes"].at(layered ? absl::StrCat("blk.0.", tensor) : tensor);
        for (size_t layer = 0; layer < types.size(); ++layer) {
          const bool plain = shape.size() < 2 || tensor == "ffn_gate_inp.weight";
          const model::TensorInfo info = {
              layered ? absl::StrCat("blk.", layer, ".", tensor) : tensor,
              plain ? DType::kF32 : DType::kF16, shape};
          EXPECT_EQ(std::string(DTypeName(model::TypeOf(recipe, of, info).type)), types[layer])
              << name << " " << recipe.name << " " << info.name;
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 10000);
}

TEST(RecipesTest, FactsAreTheFiles) {
  for (const char* name : {"mixtral", "qwen2-moe", "phi3", "granite"}) {
    SCOPED_TRACE(name);
    const std::string folder = absl::StrCat("tests/golden/models/", name);
    const json config = json::parse(std::ifstream(folder + "/config.json"));
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const model::GgufModel file,
        model::OpenGguf(absl::StrCat("tests/gguf/architectures/", name, ".gguf")));
    SKEIN_ASSERT_OK_AND_ASSIGN(const model::RecipeFacts facts,
                               model::FactsOf(file.metadata, *file.tensors));
    EXPECT_EQ(facts.layers, config["num_hidden_layers"]);
    EXPECT_EQ(facts.heads, config["num_attention_heads"]);
    EXPECT_EQ(facts.kv_heads, config["num_key_value_heads"]);
    EXPECT_EQ(facts.experts, config.value("num_local_experts", config.value("num_experts", 0)));
    EXPECT_EQ(facts.tied, config.value("tie_word_embeddings", false));
  }
}

TEST(RecipesTest, Names) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::Recipe* found, model::FindRecipe("q4_k_m"));
  EXPECT_EQ(found->name, "Q4_K_M");
  EXPECT_THAT(model::FindRecipe("Q4_K"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("'Q4_K' is none of Q8_0, "), HasSubstr("Q4_K_M"))));
}

class QuantizeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/quantize_", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string In(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(double{got[i]} - want[i], 2);
    norm += std::pow(double{want[i]}, 2);
  }
  return std::sqrt(error / norm);
}

// What normal numbers err by, at most.
double MostError(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kBF16:
      return 0;
    case DType::kF16:
      return 5e-4;
    case DType::kQ8_0:
      return 0.006;
    case DType::kQ6_K:
      return 0.02;
    case DType::kQ5_K:
    case DType::kQ5_1:
    case DType::kQ5_0:
      return 0.045;
    case DType::kQ4_K:
    case DType::kQ4_1:
    case DType::kQ4_0:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      return 0.09;
    case DType::kQ3_K:
      return 0.16;
    default:
      return 0.3;
  }
}

void ExpectNear(const std::string& file, const std::string& original) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::GgufModel got, model::OpenGguf(file));
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::GgufModel want, model::OpenGguf(original));
  ASSERT_EQ(got.tensors->tensors().size(), want.tensors->tensors().size());
  for (const model::TensorInfo& tensor : want.tensors->tensors()) {
    SCOPED_TRACE(tensor.name);
    SKEIN_ASSERT_OK_AND_ASSIGN(const model::TensorInfo* mine, got.tensors->Find(tensor.name));
    EXPECT_EQ(mine->shape, tensor.shape);
    EXPECT_LE(RelativeError(Values(*got.tensors, *mine), Values(*want.tensors, tensor)),
              MostError(mine->dtype));
  }
  for (const auto& [key, value] : want.metadata.values()) {
    if (key == "general.file_type") continue;
    SCOPED_TRACE(key);
    ASSERT_TRUE(got.metadata.Has(key));
    EXPECT_EQ(got.metadata.values().at(key).numbers, value.numbers);
    EXPECT_EQ(got.metadata.values().at(key).strings, value.strings);
  }
}

TEST_F(QuantizeTest, EveryRecipeKeepsTheModel) {
  SKEIN_ASSERT_OK(model::ConvertToGguf(kBard, In("bard.gguf")));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tokenizer, model::LoadTokenizer(kBard));
  for (const model::Recipe& recipe : model::Recipes()) {
    SCOPED_TRACE(std::string(recipe.name));
    const std::string out = In(absl::StrCat(std::string(recipe.name), ".gguf"));
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const model::Quantized made,
        model::QuantizeToGguf(In("bard.gguf"), out,
                              {.recipe = std::string(recipe.name), .threads = 2}));
    EXPECT_THAT(made.files, ElementsAre(out));
    EXPECT_GT(made.elements.at(recipe.base), made.weights / 3);
    EXPECT_LT(made.bytes, made.bytes_before * 9 / 16);
    EXPECT_THAT(made.fallen_back, IsEmpty());
    EXPECT_THAT(made.without_importance, IsEmpty());
    ExpectNear(out, In("bard.gguf"));
    SKEIN_ASSERT_OK_AND_ASSIGN(const model::GgufModel file, model::OpenGguf(out));
    EXPECT_EQ(*file.metadata.Integer("general.file_type"), recipe.file_type);
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto read, model::LoadTokenizer(out));
    EXPECT_EQ(*read->Encode("But, soft!", {}), *tokenizer->Encode("But, soft!", {}));
  }
}

// Threads, files and the format of the original change nothing.
TEST_F(QuantizeTest, BytesDependOnTheModelAlone) {
  SKEIN_ASSERT_OK(model::ConvertToGguf(kBard, In("bard.gguf")));
  int64_t last = 0;
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const model::Quantized one,
      model::QuantizeToGguf(In("bard.gguf"), In("one.gguf"),
                            {.on_progress = [&](int64_t written, int64_t all) {
                              EXPECT_GT(written, last);
                              EXPECT_LE(written, all);
                              last = written;
                            }}));
  EXPECT_EQ(last, one.bytes);
  SKEIN_ASSERT_OK(model::QuantizeToGguf(In("bard.gguf"), In("three.gguf"), {.threads = 3}));
  SKEIN_ASSERT_OK(model::QuantizeToGguf(kBard, In("folder.gguf"), {.threads = 2}));
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::string bytes, ReadFile(In("one.gguf"), 1 << 30));
  for (const char* other : {"three.gguf", "folder.gguf"}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const std::string more, ReadFile(In(other), 1 << 30));
    EXPECT_TRUE(bytes == more) << other;
  }

  // From several files into several.
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const model::Converted split,
      model::ConvertToGguf(kBard, In("split.gguf"), {.max_file_bytes = 5 << 20}));
  SKEIN_ASSERT_OK(model::QuantizeToGguf(split.files[1], In("joined.gguf"), {}));
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::string joined, ReadFile(In("joined.gguf"), 1 << 30));
  EXPECT_TRUE(joined == bytes);
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const model::Quantized parts,
      model::QuantizeToGguf(split.files[0], In("parts.gguf"), {.max_file_bytes = one.bytes / 2}));
  EXPECT_THAT(parts.files, SizeIs(::testing::Ge(2)));
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::GgufModel got, model::OpenGguf(parts.files[1]));
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::GgufModel want, model::OpenGguf(In("one.gguf")));
  ASSERT_EQ(got.tensors->tensors().size(), want.tensors->tensors().size());
  for (const model::TensorInfo& tensor : want.tensors->tensors()) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const model::TensorInfo* mine, got.tensors->Find(tensor.name));
    EXPECT_EQ(mine->dtype, tensor.dtype);
    EXPECT_EQ(Values(*got.tensors, *mine), Values(*want.tensors, tensor)) << tensor.name;
  }
}

// The squared error of a tensor, [experts, rows, cols] or [rows, cols], of some columns of an
// expert.
double ErrorOf(const std::string& file, const std::string& original, const std::string& name,
               int64_t expert, const std::function<bool(int64_t)>& is_col) {
  const absl::StatusOr<model::GgufModel> got = model::OpenGguf(file);
  const absl::StatusOr<model::GgufModel> want = model::OpenGguf(original);
  SKEIN_EXPECT_OK(got.status());
  const model::TensorInfo& tensor = **want->tensors->Find(name);
  const std::vector<float> x = Values(*want->tensors, tensor);
  const std::vector<float> y = Values(*got->tensors, **got->tensors->Find(name));
  const int64_t cols = tensor.shape.back();
  const int64_t experts = tensor.shape.size() == 3 ? tensor.shape[0] : 1;
  const int64_t size = tensor.elements() / experts;
  double error = 0;
  for (int64_t i = expert * size; i < (expert + 1) * size; ++i) {
    if (is_col(i % cols)) error += std::pow(double{x[i]} - y[i], 2);
  }
  return error;
}

// Every expert by what its own inputs are like.
TEST_F(QuantizeTest, ErrorsAreWhereInputsAreSmall) {
  const std::string down = "blk.1.ffn_down_exps.weight";
  const std::string keys = "blk.0.attn_k.weight";
  model::ImportanceMatrix matrix;
  model::Importance& of_down = matrix.tensors[down];
  of_down = {.cols = 96, .counts = {10, 10, 10, 10, 0, 10}};
  for (int64_t expert = 0; expert < 6; ++expert) {
    for (int64_t col = 0; col < 96; ++col) {
      // Even experts have their inputs in the first half of each block.
      of_down.sums.push_back((col % 32 < 16) == (expert % 2 == 0) ? 1000 : 1);
    }
  }
  model::Importance& of_keys = matrix.tensors[keys];
  of_keys = {.cols = 64, .counts = {5}};
  for (int64_t col = 0; col < 64; ++col) of_keys.sums.push_back(col % 2 == 0 ? 500 : 0);
  matrix.texts = {"a text"};
  SKEIN_ASSERT_OK(model::WriteImportance(matrix, In("importance.gguf")));
  SKEIN_ASSERT_OK(model::QuantizeToGguf(kMixtral, In("alike.gguf"), {.recipe = "Q4_0"}));
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const model::Quantized made,
      model::QuantizeToGguf(kMixtral, In("weighed.gguf"),
                            {.recipe = "Q4_0", .importance_file = In("importance.gguf")}));
  EXPECT_THAT(made.without_importance, Contains("blk.0.ffn_down_exps.weight"));
  EXPECT_THAT(made.without_importance, Not(Contains(down)));
  const auto falls = [&](const std::string& name, int64_t expert, auto is_col) {
    return ErrorOf(In("weighed.gguf"), kMixtral, name, expert, is_col) /
           ErrorOf(In("alike.gguf"), kMixtral, name, expert, is_col);
  };
  const auto first_half = [](int64_t col) { return col % 32 < 16; };
  const auto second_half = [](int64_t col) { return col % 32 >= 16; };
  for (const int64_t expert : {0, 1, 2, 3, 5}) {
    SCOPED_TRACE(expert);
    const bool even = expert % 2 == 0;
    EXPECT_LT(even ? falls(down, expert, first_half) : falls(down, expert, second_half), 0.9);
    EXPECT_GT(even ? falls(down, expert, second_half) : falls(down, expert, first_half), 1.0);
  }
  // Of the expert that no row chose, and of tensors without an importance, nothing is known.
  EXPECT_EQ(falls(down, 4, first_half), 1);
  EXPECT_EQ(falls("blk.0.ffn_down_exps.weight", 0, first_half), 1);
  EXPECT_LT(falls(keys, 0, [](int64_t col) { return col % 2 == 0; }), 0.9);

  SKEIN_ASSERT_OK_AND_ASSIGN(const model::GgufModel file, model::OpenGguf(In("weighed.gguf")));
  EXPECT_EQ(*file.metadata.String("quantize.imatrix.file"), In("importance.gguf"));
  EXPECT_EQ(*file.metadata.String("quantize.imatrix.dataset"), "a text");
  EXPECT_EQ(*file.metadata.Integer("quantize.imatrix.entries_count"), 2);
  EXPECT_EQ(made.experts_without_importance, 1);
  EXPECT_THAT(made.without_importance, Not(Contains("token_embd.weight")));
}

// What is written is read; a column without input counts a little.
TEST_F(QuantizeTest, ImportancesAreReadAsTheyWere) {
  model::ImportanceMatrix matrix = {.texts = {"x", "y"}, .chunks = 3, .chunk_tokens = 512};
  matrix.tensors["a.weight"] = {.cols = 2, .sums = {1, 2, 0, 400}, .counts = {4, 100}};
  SKEIN_ASSERT_OK(model::WriteImportance(matrix, In("i.gguf")));
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::ImportanceMatrix got,
                             model::ReadImportance(In("i.gguf")));
  EXPECT_EQ(got.texts, matrix.texts);
  EXPECT_EQ(got.chunks, 3);
  EXPECT_EQ(got.chunk_tokens, 512);
  ASSERT_EQ(got.tensors.size(), 1u);
  const model::Importance& read = got.tensors.at("a.weight");
  EXPECT_EQ(read.sums, matrix.tensors["a.weight"].sums);
  EXPECT_EQ(read.counts, matrix.tensors["a.weight"].counts);
  EXPECT_THAT(model::RelativeSquares(read, 0), ElementsAre(1 / 1.5f, 2 / 1.5f));
  EXPECT_THAT(model::RelativeSquares(read, 1), ElementsAre(0.001f, 2.0f));
  EXPECT_THAT(model::RelativeSquares({.cols = 2, .sums = {0, 0}, .counts = {0}}, 0), IsEmpty());
  EXPECT_THAT(model::RelativeSquares({.cols = 2, .sums = {0, 0}, .counts = {7}}, 0), IsEmpty());
}

TEST_F(QuantizeTest, RowsThatAreNoWholeBlocks) {
  // Hidden 64 and inner 96 of what needs 256.
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::Quantized made,
                             model::QuantizeToGguf(kMixtral, In("q.gguf"), {.recipe = "Q4_K_M"}));
  EXPECT_THAT(made.fallen_back, Contains("blk.0.attn_q.weight: Q5_0 for Q4_K"));
  EXPECT_THAT(made.fallen_back, Not(Contains(HasSubstr("ffn_gate_inp"))));
  EXPECT_EQ(made.elements.count(DType::kQ4_K), 0u);
  EXPECT_GT(made.elements.at(DType::kQ5_0), 0);
  ExpectNear(In("q.gguf"), kMixtral);
}

TEST_F(QuantizeTest, Errors) {
  const auto refused = [&](const std::string& model, model::QuantizeOptions options,
                           absl::StatusCode code, const std::string& says) {
    options.threads = 2;
    const std::string out = In("refused.gguf");
    EXPECT_THAT(model::QuantizeToGguf(model, out, options), StatusIs(code, HasSubstr(says)));
    EXPECT_FALSE(std::filesystem::exists(out));
    EXPECT_FALSE(std::filesystem::exists(out + ".part"));
  };
  refused(kBard, {.recipe = "Q9"}, absl::StatusCode::kInvalidArgument, "'Q9' is none of");
  refused(In("none.gguf"), {}, absl::StatusCode::kNotFound, In("none.gguf"));
  refused(In("none"), {}, absl::StatusCode::kNotFound, In("none"));
  SKEIN_ASSERT_OK(model::QuantizeToGguf(kBard, In("q8.gguf"), {.recipe = "Q8_0"}));
  refused(In("q8.gguf"), {}, absl::StatusCode::kUnimplemented,
          "of Q8_0 already, and would lose once more");
  EXPECT_THAT(model::QuantizeToGguf(kBard, In("q8.gguf"), {}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(In("q8.gguf"))));
  EXPECT_THAT(model::QuantizeToGguf(kBard, In("q8.bin"), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ends with .gguf")));
  refused(kBard, {.importance_file = In("q8.gguf")}, absl::StatusCode::kInvalidArgument,
          "q8.gguf: this is no importance matrix");
  refused(kBard, {.importance_file = In("none.gguf")}, absl::StatusCode::kNotFound,
          In("none.gguf"));

  model::ImportanceMatrix other;
  other.tensors["blk.0.attn_q.weight"] = {.cols = 2, .sums = {1, 2}, .counts = {1}};
  SKEIN_ASSERT_OK(model::WriteImportance(other, In("other.gguf")));
  refused(kBard, {.importance_file = In("other.gguf")}, absl::StatusCode::kInvalidArgument,
          "it is of another model: 'blk.0.attn_q.weight' has 1 x 256 inputs, and 1 x 2 there");
  other.tensors["blk.0.attn_q.weight"].sums[1] = std::nanf("");
  SKEIN_ASSERT_OK(model::WriteImportance(other, In("nan.gguf")));
  refused(kBard, {.importance_file = In("nan.gguf")}, absl::StatusCode::kInvalidArgument,
          "nan.gguf: tensor 'blk.0.attn_q.weight.in_sum2' holds nan");
  other.tensors.clear();
  other.tensors["blk.99.attn_q.weight"] = {
      .cols = 256, .sums = std::vector<float>(256), .counts = {1}};
  SKEIN_ASSERT_OK(model::WriteImportance(other, In("unknown.gguf")));
  refused(kBard, {.importance_file = In("unknown.gguf")}, absl::StatusCode::kInvalidArgument,
          "none of its 1 tensors is one of this model's");
  refused(kBard, {.importance_file = In("old.dat")}, absl::StatusCode::kInvalidArgument,
          "an importance matrix is a GGUF file");
  model::ImportanceMatrix none;
  SKEIN_ASSERT_OK(model::WriteImportance(none, In("nothing.gguf")));
  refused(kBard, {.importance_file = In("nothing.gguf")}, absl::StatusCode::kInvalidArgument,
          "nothing of any tensor");

  // Numbers that no block holds.
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), 70000.0f}) {
    SCOPED_TRACE(bad);
    const std::string copy = In("bad");
    std::filesystem::remove_all(copy);
    std::filesystem::copy(kBard, copy);
    std::filesystem::permissions(copy + "/model.safetensors", std::filesystem::perms::owner_all);
    std::fstream file(copy + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-8192, std::ios::end);  // the last tensor is a vector
    const uint16_t bits = FloatToBf16(bad);
    for (int i = 0; i < 256; ++i) file.write(reinterpret_cast<const char*>(&bits), 2);
    file.close();
    const absl::StatusOr<model::Quantized> made =
        model::QuantizeToGguf(copy, In("refused.gguf"), {});
    EXPECT_THAT(made,
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("which blocks cannot")));
  }
}

}  // namespace
}  // namespace skein::testing

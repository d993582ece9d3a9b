// Folders as Skein converts them: against the files that llama.cpp's converter wrote of the same
// models (make_architecture_files.py), and what is refused.
#include "model/convert/convert.h"

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/range.h"
#include "base/test_util.h"
#include "model/config/model_config.h"
#include "model/format/gguf.h"
#include "model/format/gguf_writer.h"
#include "model/format/safetensors_writer.h"
#include "model/inspect/inspect.h"
#include "model/synthetic/synthetic.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/gguf/read_tensor.h"

namespace skein::testing {
namespace {

using ::nlohmann::json;
using ::testing::HasSubstr;

constexpr char kModels[] = "tests/golden/models/";
constexpr char kBard[] = "checkpoints/bard";

class ConvertTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/convert_", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Out(const std::string& name = "out.gguf") const { return folder_ + "/" + name; }
  // A copy of a model, to be changed.
  std::string CopyOf(const std::string& model) const {
    const std::string copy = folder_ + "/model";
    std::filesystem::remove_all(copy);
    std::filesystem::copy(model, copy);
    return copy;
  }

  std::string folder_;
};

// All that both files say; llama.cpp's leaves out keys whose values follow from others.
void ExpectSameFile(const std::string& ours, const std::string& theirs) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::GgufModel got, model::OpenGguf(ours));
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::GgufModel want, model::OpenGguf(theirs));
  ASSERT_EQ(got.tensors->tensors().size(), want.tensors->tensors().size());
  for (size_t i = 0; i < want.tensors->tensors().size(); ++i) {
    const model::TensorInfo& tensor = want.tensors->tensors()[i];
    const model::TensorInfo& mine = got.tensors->tensors()[i];
    SCOPED_TRACE(tensor.name);
    ASSERT_EQ(mine.name, tensor.name);
    EXPECT_EQ(mine.shape, tensor.shape);
    ASSERT_EQ(mine.dtype, tensor.dtype);
    EXPECT_TRUE(Bytes(*got.tensors, mine) == Bytes(*want.tensors, tensor));
  }
  for (const auto& [key, value] : want.metadata.values()) {
    if (absl::StartsWith(key, "general.size_label")) continue;
    SCOPED_TRACE(key);
    ASSERT_TRUE(got.metadata.Has(key));
    const model::GgufValue& mine = got.metadata.values().at(key);
    EXPECT_EQ(mine.type, value.type);
    EXPECT_EQ(mine.strings, value.strings);
    EXPECT_EQ(mine.numbers, value.numbers);
  }
}

TEST_F(ConvertTest, FilesAreThoseOfAnotherConverter) {
  for (const char* name : {"qwen3", "phi3", "granite", "mixtral", "qwen2-moe", "qwen3-moe"}) {
    SCOPED_TRACE(name);
    const std::string out = Out(absl::StrCat(name, ".gguf"));
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const model::Converted converted,
        model::ConvertToGguf(absl::StrCat(kModels, name), out, {.matrices = DType::kBF16}));
    EXPECT_EQ(converted.files, std::vector<std::string>{out});
    EXPECT_FALSE(converted.has_vocabulary);
    ExpectSameFile(out, absl::StrCat("tests/gguf/architectures/", name, ".gguf"));
  }
}

// The small models have layers that files cannot tell of; the field is named, and nothing written.
TEST_F(ConvertTest, WhatFilesCannotSayIsRefused) {
  const std::map<std::string, std::string> cases = {
      {"llama-biases", "cannot say this model's rotary embedding"},
      {"mistral", "cannot say this model's sliding windows"},
      {"gemma3", "cannot say this model's sliding windows"},
      {"smollm3", "cannot say this model's layers without rotary embedding"},
      {"gemma2", "cannot say this model's scale of attention"},
  };
  for (const auto& [name, message] : cases) {
    EXPECT_THAT(model::ConvertToGguf(kModels + name, Out()),
                StatusIs(absl::StatusCode::kUnimplemented,
                         AllOf(HasSubstr(kModels + name), HasSubstr(message))));
    EXPECT_FALSE(std::filesystem::exists(Out()));
  }
}

// The same models without these fields: their tensors, Gemma's gains among them.
TEST_F(ConvertTest, FamiliesWithoutWhatFilesCannotSay) {
  const auto convert = [&](const std::string& name, const std::function<void(json&)>& change) {
    const std::string copy = CopyOf(kModels + name);
    json config = json::parse(std::ifstream(copy + "/config.json"));
    change(config);
    std::ofstream(copy + "/config.json") << config.dump();
    const std::string out = Out(name + ".gguf");
    SKEIN_EXPECT_OK(model::ConvertToGguf(copy, out, {.matrices = DType::kBF16}));
    return out;
  };
  const std::string mistral =
      convert("mistral", [](json& config) { config["sliding_window"] = nullptr; });
  const std::string gemma2 =
      convert("gemma2", [](json& config) { config["query_pre_attn_scalar"] = 32; });
  for (const auto& [ours, name] : {std::pair(mistral, "mistral"), {gemma2, "gemma2"}}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const model::GgufModel got, model::OpenGguf(ours));
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const model::GgufModel want,
        model::OpenGguf(absl::StrCat("tests/gguf/architectures/", name, ".gguf")));
    ASSERT_EQ(got.tensors->tensors().size(), want.tensors->tensors().size());
    for (size_t i = 0; i < want.tensors->tensors().size(); ++i) {
      ASSERT_EQ(got.tensors->tensors()[i].name, want.tensors->tensors()[i].name);
      EXPECT_EQ(got.tensors->tensors()[i].shape, want.tensors->tensors()[i].shape);
      EXPECT_TRUE(Bytes(*got.tensors, got.tensors->tensors()[i]) ==
                  Bytes(*want.tensors, want.tensors->tensors()[i]))
          << want.tensors->tensors()[i].name;
    }
  }
}

// Llama 3's scaling is a tensor of divisors.
TEST_F(ConvertTest, ScaledRotaryEmbedding) {
  const std::string folder = absl::StrCat(kModels, "llama3-rope");
  SKEIN_ASSERT_OK(model::ConvertToGguf(folder, Out()));
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::ModelConfig want, model::LoadModelConfig(folder));
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::ModelConfig got, model::LoadModelConfig(Out()));
  ASSERT_FALSE(got.rope.divisors.empty());
  const std::vector<float> frequencies = got.rope.InverseFrequencies(got.head_dim, 0);
  const std::vector<float> wanted = want.rope.InverseFrequencies(want.head_dim, 0);
  ASSERT_EQ(frequencies.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(frequencies[i], wanted[i], 1e-6 * wanted[i]) << i;
  }
  // Plain frequencies are others.
  model::RopeConfig plain = got.rope;
  plain.divisors.clear();
  EXPECT_NE(plain.InverseFrequencies(got.head_dim, 0), frequencies);
}

// Vocabularies of characters: the ids of the folder's texts, read back from the file.
class ConvertVocabularyTest : public ConvertTest {
 protected:
  // A small Llama whose vocabulary has room for these tokenizers.
  std::string Folder(int64_t vocab_size) {
    const std::string folder = folder_ + "/model";
    model::ModelConfig config = model::LoadModelConfig(kBard).value();
    config.num_layers = 1;
    config.vocab_size = vocab_size;
    SKEIN_EXPECT_OK(
        model::WriteModelFolder(config, *model::MakeSyntheticWeights(config, "convert"), folder));
    return folder;
  }
  void ExpectSameIds(const std::string& folder, const json& rows) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const model::Converted converted,
                               model::ConvertToGguf(folder, Out()));
    EXPECT_TRUE(converted.has_vocabulary);
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto want, model::LoadTokenizer(folder));
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto got, model::LoadTokenizer(Out()));
    ASSERT_GE(rows.size(), 100u);
    for (const json& row : rows) {
      const auto text = row["text"].get<std::string>();
      EXPECT_EQ(*got->Encode(text, {}), *want->Encode(text, {})) << text;
    }
  }
};

TEST_F(ConvertVocabularyTest, SentencePieceModels) {
  const json table =
      json::parse(std::ifstream("model/tokenizer/testdata/sentence_piece_table.json"));
  int converted = 0;
  for (const json& entry : table) {
    const std::string name = entry["name"];
    const std::string folder = Folder(1024);
    std::string bytes;
    ASSERT_TRUE(absl::Base64Unescape(entry["model"].get<std::string>(), &bytes));
    std::ofstream(folder + "/tokenizer.model", std::ios::binary) << bytes;
    // As the file has it: each text begins with the space that the model says.
    std::ofstream(folder + "/tokenizer_config.json") << R"({"legacy": true})";
    EXPECT_EQ(model::Inspect(folder).tokenizer, "tokenizer.model");
    if (name == "BPE as Gemma has it") {
      ExpectSameIds(folder, entry["rows"]);
      std::filesystem::remove(Out());
      ++converted;
      continue;
    }
    const std::string message = absl::StartsWith(name, "unigram") ? "unigram"
                                : name == "BPE"                   ? "precompiled_charsmap"
                                                                  : "user-defined pieces beside";
    EXPECT_THAT(model::ConvertToGguf(folder, Out()),
                StatusIs(absl::StatusCode::kUnimplemented,
                         HasSubstr(absl::StrCat(folder, "/tokenizer.model: ", message))))
        << name;
  }
  EXPECT_EQ(converted, 1);
}

TEST_F(ConvertVocabularyTest, TokenizerJsonOfCharacters) {
  const json table = json::parse(std::ifstream("model/tokenizer/testdata/tokenizer_table.json"));
  int converted = 0;
  for (const json& variant : table["tokenizers"]) {
    const std::string name = variant["name"];
    if (name != "Llama-2" && name != "Gemma") continue;
    json document = json::parse(std::ifstream(absl::StrCat(kBard, "/tokenizer.json")));
    for (const auto& [pointer, value] : variant["patch"].items()) {
      document[json::json_pointer(pointer)] = value;
    }
    // Files look for no token in text that is normalised.
    document["added_tokens"].erase(3);
    const std::string folder = Folder(1024);
    std::ofstream(folder + "/tokenizer.json") << document.dump();
    ExpectSameIds(folder, variant["rows"]);
    std::filesystem::remove(Out());
    ++converted;
  }
  EXPECT_EQ(converted, 2);
}

// Vocabulary, chat template and end tokens; split into several files, too.
TEST_F(ConvertTest, BardIsBard) {
  int calls = 0;
  int64_t last = 0;
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const model::Converted one,
      model::ConvertToGguf(kBard, Out(), {.on_progress = [&](int64_t written, int64_t all) {
                             ++calls;
                             EXPECT_GT(written, last);
                             EXPECT_LE(written, all);
                             last = written;
                           }}));
  EXPECT_TRUE(one.has_vocabulary);
  EXPECT_EQ(last, one.bytes);
  EXPECT_GE(calls, one.tensors);
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const model::Converted split,
      model::ConvertToGguf(kBard, Out("split.gguf"), {.max_file_bytes = one.bytes / 3}));
  EXPECT_GE(split.files.size(), 3u);
  EXPECT_FALSE(std::filesystem::exists(Out("split.gguf")));

  SKEIN_ASSERT_OK_AND_ASSIGN(const auto want, model::LoadTokenizer(kBard));
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::ModelConfig config, model::LoadModelConfig(kBard));
  for (const std::string& file : {Out(), split.files[0]}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto got, model::LoadTokenizer(file));
    for (const char* text : {"ROMEO:\nBut, soft!", "<|endoftext|>x", "caf\u00e9 42"}) {
      EXPECT_EQ(*got->Encode(text, {.parse_special = true}),
                *want->Encode(text, {.parse_special = true}));
    }
    SKEIN_ASSERT_OK_AND_ASSIGN(const model::ModelConfig read, model::LoadModelConfig(file));
    EXPECT_EQ(read.bos_token_id, config.bos_token_id);
    EXPECT_EQ(read.eos_token_ids, config.eos_token_ids);
    EXPECT_EQ(read.ParameterCount(), config.ParameterCount());
    SKEIN_ASSERT_OK_AND_ASSIGN(const model::GgufModel model, model::OpenGguf(file));
    EXPECT_EQ(static_cast<int64_t>(model.tensors->tensors().size()), one.tensors);
  }
}

// A second conversion touches nothing that is there.
TEST_F(ConvertTest, ExistingFilesStay) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::Converted split,
                             model::ConvertToGguf(kBard, Out(), {.max_file_bytes = 4 << 20}));
  ASSERT_GE(split.files.size(), 2u);
  std::filesystem::remove(split.files[0]);
  EXPECT_THAT(model::ConvertToGguf(kBard, Out(), {.max_file_bytes = 4 << 20}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(split.files[1])));
  EXPECT_FALSE(std::filesystem::exists(split.files[0]));
}

// Of several tokens that end an answer none is lost; the tokenizer's own is the first.
TEST_F(ConvertTest, TokensThatEndAnAnswer) {
  const std::string copy = CopyOf(kBard);
  json config = json::parse(std::ifstream(copy + "/config.json"));
  config["eos_token_id"] = {0, 5};
  std::ofstream(copy + "/config.json") << config.dump();
  std::ofstream(copy + "/generation_config.json") << R"({"eos_token_id": [0, 7]})";
  SKEIN_ASSERT_OK(model::ConvertToGguf(copy, Out()));
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::ModelConfig read, model::LoadModelConfig(Out()));
  EXPECT_EQ(read.eos_token_ids, (std::vector<int32_t>{0, 5, 7}));
  std::ofstream(copy + "/generation_config.json") << R"({"eos_token_id": [0, 7, 9]})";
  EXPECT_THAT(model::ConvertToGguf(copy, Out("b.gguf")),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("no word left for token 9")));
}

// What a published folder may hold beside its network, and tokens beyond its embeddings.
TEST_F(ConvertTest, WhatIsNotNeededIsLeftOut) {
  const std::string copy = CopyOf(kBard);
  json tokenizer = json::parse(std::ifstream(copy + "/tokenizer.json"));
  tokenizer["added_tokens"].push_back(
      {{"id", 2048}, {"content", "<image>"}, {"special", true}, {"lstrip", nullptr}});
  std::ofstream(copy + "/tokenizer.json") << tokenizer.dump();
  SKEIN_ASSERT_OK(model::ConvertToGguf(copy, Out()));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto got, model::LoadTokenizer(Out()));
  EXPECT_EQ(got->vocab_size(), 2048);

  for (const char* pointer : {"/model/type", "/added_tokens/0/special", "/added_tokens/0/id"}) {
    json bad = tokenizer;
    bad[json::json_pointer(pointer)] = json::array();
    std::ofstream(copy + "/tokenizer.json") << bad.dump();
    EXPECT_THAT(model::ConvertToGguf(copy, Out("b.gguf")),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/tokenizer.json: ")));
  }
  tokenizer["normalizer"] = {{"type", "NFKC"}};
  std::ofstream(copy + "/tokenizer.json") << tokenizer.dump();
  EXPECT_THAT(model::ConvertToGguf(copy, Out("b.gguf")),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("type NFKC has no word")));
}

TEST_F(ConvertTest, Errors) {
  EXPECT_THAT(model::ConvertToGguf(folder_ + "/none", Out()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder_ + "/none/config.json")));
  EXPECT_THAT(model::ConvertToGguf(kBard, Out("out.bin")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ends with .gguf")));
  EXPECT_THAT(model::ConvertToGguf(kBard, folder_ + "/none/out.gguf"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder_ + "/none/out.gguf")));
  std::ofstream(Out()) << "x";
  EXPECT_THAT(model::ConvertToGguf(kBard, Out()),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(Out())));
  EXPECT_THAT(model::ConvertToGguf(Out(), Out("b.gguf")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is a GGUF file already")));
  EXPECT_THAT(model::ConvertToGguf(absl::StrCat(kModels, "awq"), Out("b.gguf")),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("only models in F32")));

  // A full disk: nothing is left.
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::GgufModel file,
                             model::OpenGguf("tests/gguf/architectures/qwen3.gguf"));
  const std::string full = Out("full.gguf");
  std::filesystem::create_symlink("/dev/full", full + ".part");
  EXPECT_THAT(model::WriteGguf(file.metadata.values(), *file.tensors, full),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr(full)));
  EXPECT_FALSE(std::filesystem::exists(full + ".part"));

  const std::string copy = CopyOf(kBard);
  json tokenizer = json::parse(std::ifstream(copy + "/tokenizer.json"));
  tokenizer["pre_tokenizer"]["use_regex"] = false;
  std::ofstream(copy + "/tokenizer.json") << tokenizer.dump();
  EXPECT_THAT(model::ConvertToGguf(copy, Out("c.gguf")),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr(copy + "/tokenizer.json"), HasSubstr("pre_tokenizer"))));
}

}  // namespace
}  // namespace skein::testing

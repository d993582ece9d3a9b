#include "model/format/gguf.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "model/format/gguf_bytes.h"
#include "model/format/test_files.h"

namespace skein::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Floats(const std::vector<float>& values) {
  std::string bytes;
  for (float value : values) bytes += LittleEndian(value);
  return bytes;
}

std::string Written(const GgufBytes& bytes, const std::string& name = "model.gguf") {
  const std::string path = FreshFolder() + "/" + name;
  WriteTestFile(path, bytes.Build());
  return path;
}

TEST(GgufTest, ReadsEveryTypeOfMetadata) {
  GgufBytes bytes;
  bytes.Add("u8", GgufType::kUint8, LittleEndian<uint8_t>(200))
      .Add("i8", GgufType::kInt8, LittleEndian<int8_t>(-3))
      .Add("u16", GgufType::kUint16, LittleEndian<uint16_t>(65535))
      .Add("i16", GgufType::kInt16, LittleEndian<int16_t>(-300))
      .Add("u32", GgufType::kUint32, LittleEndian<uint32_t>(4000000000u))
      .Add("i32", GgufType::kInt32, LittleEndian<int32_t>(-7))
      .Add("f32", GgufType::kFloat32, LittleEndian(0.5f))
      .Add("yes", GgufType::kBool, LittleEndian<uint8_t>(1))
      .Add("no", GgufType::kBool, LittleEndian<uint8_t>(0))
      .AddString("text", std::string("a\0b", 3))
      .Add("u64", GgufType::kUint64, LittleEndian<uint64_t>(1ull << 62))
      .Add("huge", GgufType::kUint64, LittleEndian<uint64_t>(~0ull))
      .Add("i64", GgufType::kInt64, LittleEndian<int64_t>(-(1ll << 40)))
      .Add("f64", GgufType::kFloat64, LittleEndian(0.1))
      .Add("words", GgufType::kArray, GgufStrings({"x", "", "yz"}))
      .Add("ints", GgufType::kArray,
           GgufArray(GgufType::kInt32, {LittleEndian<int32_t>(1), LittleEndian<int32_t>(-2)}))
      .Add("none", GgufType::kArray, GgufArray(GgufType::kFloat32, {}))
      .Add("nested", GgufType::kArray,
           GgufArray(GgufType::kArray, {GgufStrings({"in"}), GgufStrings({})}));
  SKEIN_ASSERT_OK_AND_ASSIGN(const GgufMetadata metadata, ReadGgufMetadata(Written(bytes)));
  EXPECT_EQ(*metadata.Integer("u8"), 200);
  EXPECT_EQ(*metadata.Integer("i8"), -3);
  EXPECT_EQ(*metadata.Integer("u16"), 65535);
  EXPECT_EQ(*metadata.Integer("i16"), -300);
  EXPECT_EQ(*metadata.Integer("u32"), 4000000000);
  EXPECT_EQ(*metadata.Integer("i32"), -7);
  EXPECT_EQ(*metadata.Integer("u64"), int64_t{1} << 62);
  EXPECT_EQ(*metadata.Integer("i64"), -(int64_t{1} << 40));
  EXPECT_EQ(*metadata.Number("f32"), 0.5);
  EXPECT_EQ(*metadata.Number("f64"), 0.1);
  EXPECT_EQ(*metadata.Number("i32"), -7.0);
  EXPECT_EQ(*metadata.Number("huge"), 18446744073709551615.0);
  EXPECT_TRUE(*metadata.Bool("yes"));
  EXPECT_FALSE(*metadata.Bool("no"));
  EXPECT_EQ(*metadata.String("text"), std::string_view("a\0b", 3));
  EXPECT_THAT(*metadata.Strings("words"), ElementsAre("x", "", "yz"));
  EXPECT_THAT(*metadata.Integers("ints"), ElementsAre(1, -2));
  EXPECT_THAT(*metadata.Numbers("ints"), ElementsAre(1.0, -2.0));
  EXPECT_TRUE(metadata.Numbers("none")->empty());
  const GgufValue& nested = metadata.values().at("nested");
  ASSERT_EQ(nested.arrays.size(), 2u);
  EXPECT_THAT(nested.arrays[0].strings, ElementsAre("in"));
  EXPECT_EQ(nested.arrays[1].count, 0);
}

TEST(GgufTest, OtherTypesAndMissingKeysAreNamed) {
  GgufBytes bytes;
  bytes.AddString("text", "a")
      .AddUint32("number", 1)
      .Add("huge", GgufType::kUint64, LittleEndian<uint64_t>(1ull << 63))
      .Add("words", GgufType::kArray, GgufStrings({"x"}));
  SKEIN_ASSERT_OK_AND_ASSIGN(const GgufMetadata metadata, ReadGgufMetadata(Written(bytes)));
  EXPECT_TRUE(absl::IsNotFound(metadata.Integer("absent").status()));
  EXPECT_THAT(metadata.Integer("absent").status().message(), HasSubstr("'absent'"));
  EXPECT_THAT(metadata.Integer("text").status().message(),
              AllOf(HasSubstr("'text'"), HasSubstr("of type string"), HasSubstr("integer")));
  EXPECT_THAT(metadata.Integer("huge").status().message(), HasSubstr("below 2^63"));
  EXPECT_THAT(metadata.Integer("words").status().message(),
              HasSubstr("an array of 1 of type string, not a single value"));
  EXPECT_THAT(metadata.Integers("words").status().message(), HasSubstr("not integers"));
  EXPECT_THAT(metadata.Bool("number").status().message(), HasSubstr("not a bool"));
  EXPECT_THAT(metadata.Strings("text").status().message(), HasSubstr("not an array"));
}

TEST(GgufTest, ReadsSlicesOfTensors) {
  // Two rows of three, innermost size first in the file; blocks of 32 in rows of 64.
  std::string blocks;
  for (int i = 0; i < 4; ++i) blocks += std::string(34, static_cast<char>('a' + i));
  GgufBytes bytes;
  bytes.AddTensor("plain", {3, 2}, kGgmlF32, Floats({1, 2, 3, 4, 5, 6}))
      .AddTensor("blocks", {64, 2}, kGgmlQ8_0, blocks)
      .AddTensor("scalar", {}, kGgmlF32, Floats({7}));
  SKEIN_ASSERT_OK_AND_ASSIGN(const GgufModel model, OpenGguf(Written(bytes)));
  const TensorSource* source = model.tensors.get();
  ASSERT_EQ(source->tensors().size(), 3u);
  EXPECT_EQ(source->files().size(), 1u);

  SKEIN_ASSERT_OK_AND_ASSIGN(const TensorInfo* plain, source->Find("plain"));
  EXPECT_THAT(plain->shape, ElementsAre(2, 3));
  std::vector<float> column(2);
  SKEIN_ASSERT_OK(source->Read(*plain, std::vector<Range>{{0, 2}, {1, 2}},
                               absl::MakeSpan(reinterpret_cast<std::byte*>(column.data()), 8)));
  EXPECT_THAT(column, ElementsAre(2, 5));

  SKEIN_ASSERT_OK_AND_ASSIGN(const TensorInfo* quantized, source->Find("blocks"));
  EXPECT_EQ(quantized->dtype, DType::kQ8_0);
  EXPECT_THAT(quantized->shape, ElementsAre(2, 64));
  std::string second(2 * 34, '\0');
  const auto out = absl::MakeSpan(reinterpret_cast<std::byte*>(second.data()), second.size());
  SKEIN_ASSERT_OK(source->Read(*quantized, std::vector<Range>{{0, 2}, {32, 64}}, out));
  EXPECT_EQ(second, std::string(34, 'b') + std::string(34, 'd'));
  // Off block boundaries.
  EXPECT_TRUE(
      absl::IsInvalidArgument(source->Read(*quantized, std::vector<Range>{{0, 2}, {16, 48}}, out)));
}

TEST(GgufTest, LongHeadersAreReadWhole) {
  GgufBytes bytes;
  const std::string text(3 << 20, 'x');
  bytes.AddString("long", text).AddUint32("last", 7);
  SKEIN_ASSERT_OK_AND_ASSIGN(const GgufMetadata metadata, ReadGgufMetadata(Written(bytes)));
  EXPECT_EQ(metadata.String("long")->size(), text.size());
  EXPECT_EQ(*metadata.Integer("last"), 7);
}

TEST(GgufTest, ReadsVersion2AndOtherAlignments) {
  GgufBytes bytes;
  bytes.version = 2;
  bytes.alignment = 64;
  bytes.AddUint32("general.alignment", 64)
      .AddTensor("a", {1}, kGgmlF32, Floats({1}))
      .AddTensor("b", {1}, kGgmlF32, Floats({2}));
  SKEIN_ASSERT_OK_AND_ASSIGN(const GgufModel model, OpenGguf(Written(bytes)));
  const TensorSource* source = model.tensors.get();
  SKEIN_ASSERT_OK_AND_ASSIGN(const TensorInfo* b, source->Find("b"));
  float value = 0;
  SKEIN_ASSERT_OK(source->Read(*b, std::vector<Range>{{0, 1}},
                               absl::MakeSpan(reinterpret_cast<std::byte*>(&value), 4)));
  EXPECT_EQ(value, 2.0f);
}

// File `number` of two, with one tensor.
GgufBytes Part(uint16_t number, const std::string& tensor, uint32_t tensors = 2) {
  GgufBytes bytes;
  bytes.Add("split.no", GgufType::kUint16, LittleEndian<uint16_t>(number - 1))
      .Add("split.count", GgufType::kUint16, LittleEndian<uint16_t>(2))
      .Add("split.tensors.count", GgufType::kInt32, LittleEndian(tensors));
  if (number == 1) bytes.AddString("general.name", "two files");
  bytes.AddTensor(tensor, {1}, kGgmlF32, Floats({static_cast<float>(number)}));
  return bytes;
}

TEST(GgufTest, SplitFilesAreOneModelWhicheverIsNamed) {
  const std::string folder = FreshFolder();
  const std::string first = folder + "/m-00001-of-00002.gguf";
  const std::string second = folder + "/m-00002-of-00002.gguf";
  WriteTestFile(first, Part(1, "a").Build());
  WriteTestFile(second, Part(2, "b").Build());
  for (const std::string& path : {first, second}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const GgufModel model, OpenGguf(path));
    const TensorSource* source = model.tensors.get();
    EXPECT_EQ(source->files().size(), 2u);
    SKEIN_ASSERT_OK_AND_ASSIGN(const TensorInfo* b, source->Find("b"));
    float value = 0;
    SKEIN_ASSERT_OK(source->Read(*b, std::vector<Range>{{0, 1}},
                                 absl::MakeSpan(reinterpret_cast<std::byte*>(&value), 4)));
    EXPECT_EQ(value, 2.0f);
    SKEIN_ASSERT_OK_AND_ASSIGN(const GgufMetadata metadata, ReadGgufMetadata(path));
    EXPECT_EQ(*metadata.String("general.name"), "two files");
  }
}

TEST(GgufTest, BrokenSplitsAreNamed) {
  const std::string folder = FreshFolder();
  const std::string first = folder + "/m-00001-of-00002.gguf";
  const std::string second = folder + "/m-00002-of-00002.gguf";
  const auto said = [](const std::string& path) {
    return std::string(OpenGguf(path).status().message());
  };
  WriteTestFile(first, Part(1, "a").Build());
  EXPECT_THAT(said(first), HasSubstr(second));  // it is not there
  WriteTestFile(second, Part(1, "b").Build());
  EXPECT_THAT(said(first), AllOf(HasSubstr("file 1 of 2"), HasSubstr("by its name it is 2 of 2")));
  WriteTestFile(second, Part(2, "a").Build());
  EXPECT_THAT(said(first), AllOf(HasSubstr("tensor 'a'"), HasSubstr(second), HasSubstr(first)));
  WriteTestFile(second, Part(2, "b").Build());
  WriteTestFile(first, Part(1, "a", 3).Build());
  EXPECT_THAT(said(first), HasSubstr("3 tensors, its files hold 2"));
  const std::string other = folder + "/other.gguf";
  WriteTestFile(other, Part(2, "b").Build());
  EXPECT_THAT(said(other), AllOf(HasSubstr(other), HasSubstr("-00002-of-00002.gguf")));
}

// Vocabularies of published models: 32,000 to 262,144 tokens.
TEST(GgufTest, ReadsPublishedVocabularies) {
  const char* shared = std::getenv("SKEIN_SHARED");
  if (shared == nullptr) GTEST_SKIP() << "no ../shared: SKEIN_SHARED is not set";
  const struct {
    const char* name;
    const char* architecture;
    size_t tokens;
  } kCases[] = {{"llama-bpe", "llama", 128256},
                {"qwen2", "qwen2", 151936},
                {"llama-spm", "llama", 32000},
                {"gemma-4", "gemma4", 262144}};
  for (const auto& [name, architecture, tokens] : kCases) {
    SCOPED_TRACE(name);
    const std::string path = absl::StrCat(shared, "/data/tokenizers/ggml-vocab-", name, ".gguf");
    SKEIN_ASSERT_OK_AND_ASSIGN(const GgufMetadata metadata, ReadGgufMetadata(path));
    EXPECT_EQ(*metadata.String("general.architecture"), architecture);
    EXPECT_EQ(metadata.Strings("tokenizer.ggml.tokens")->size(), tokens);
  }
}

}  // namespace
}  // namespace skein::model

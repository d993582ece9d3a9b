// GGUF files that lie: each must be refused with its path, key or tensor, and reason.
#include <cstdint>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "model/format/gguf.h"
#include "model/format/gguf_bytes.h"
#include "model/format/gguf_header.h"
#include "model/format/test_files.h"

namespace skein::model {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMost = ~0ull;
constexpr uint64_t k2To63 = 1ull << 63;

struct Case {
  const char* name;
  std::string bytes;
  std::vector<const char*> says;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

// "GGUF", version 3, so many tensors and metadata, and these bytes.
std::string Start(uint64_t tensors, uint64_t metadata, const std::string& rest = "") {
  return "GGUF" + LittleEndian<uint32_t>(3) + LittleEndian(tensors) + LittleEndian(metadata) + rest;
}

std::string Cut(std::string bytes, size_t by) {
  bytes.resize(bytes.size() - by);
  return bytes;
}

// One metadata `k`, of this type and these bytes.
std::string OneValue(GgufType type, const std::string& value) {
  return GgufBytes().Add("k", type, value).Build();
}

// Arrays of arrays, `depth` of them.
std::string Nested(int depth) {
  std::string array = GgufArray(GgufType::kUint8, {});
  for (int i = 1; i < depth; ++i) array = GgufArray(GgufType::kArray, {array});
  return OneValue(GgufType::kArray, array);
}

// One tensor `t` over 64 bytes of data.
std::string OneTensor(const std::vector<uint64_t>& sizes, uint32_t type, uint64_t offset) {
  GgufBytes bytes;
  bytes.List("t", sizes, type, offset);
  bytes.data = std::string(64, 'x');
  return bytes.Build();
}

// Tensors of 8 floats at these offsets, over `data` bytes.
std::string Tensors(const std::vector<uint64_t>& offsets, size_t data) {
  GgufBytes bytes;
  for (size_t i = 0; i < offsets.size(); ++i) {
    bytes.List("t" + std::to_string(i), {8}, kGgmlF32, offsets[i]);
  }
  bytes.data = std::string(data, 'x');
  return bytes.Build();
}

std::string Version(uint32_t version) {
  GgufBytes bytes;
  bytes.version = version;
  return bytes.Build();
}

std::string Aligned(uint32_t alignment) {
  return GgufBytes().AddUint32("general.alignment", alignment).Build();
}

std::string Twice(const std::string& a, const std::string& b) {
  GgufBytes bytes;
  bytes.AddTensor(a, {1}, kGgmlF32, "abcd").AddTensor(b, {1}, kGgmlF32, "efgh");
  return bytes.Build();
}

std::vector<Case> Cases() {
  const absl::StatusCode unread = absl::StatusCode::kUnimplemented;
  return {
      // The first 24 bytes.
      {"empty file", "", {"at offset 0", "the magic takes 4 bytes"}},
      {"3 bytes", "GGU", {"the magic"}},
      {"another magic", "GGML" + std::string(60, '\0'), {"'GGML'", "no GGUF file"}},
      {"a zip file", "PK\x03\x04 and more", {"no GGUF file"}},
      {"a safetensors file", SafetensorsBytes("{}", ""), {"no GGUF file"}},
      {"magic in lower case", "gguf" + std::string(60, '\0'), {"'gguf'"}},
      {"no version", "GGUF", {"at offset 4", "the version"}},
      {"version 0", Version(0), {"version 0"}, unread},
      {"version 1", Version(1), {"version 1"}, unread},
      {"version 4", Version(4), {"version 4"}, unread},
      {"version 2^32 - 1", Version(~0u), {"version 4294967295"}, unread},
      {"big-endian version 3", Version(3u << 24), {"big-endian"}, unread},
      {"no counts", "GGUF" + LittleEndian<uint32_t>(3), {"at offset 8", "number of tensors"}},
      {"half a count", Cut(Start(0, 0), 9), {"number of tensors"}},
      {"no number of metadata", Cut(Start(0, 0), 8), {"at offset 16", "number of metadata"}},
      {"2^63 tensors", Start(k2To63, 0), {"9223372036854775808 tensors"}},
      {"2^64 - 1 tensors", Start(kMost, 0), {"18446744073709551615 tensors"}},
      {"more tensors than are read", Start((1 << 20) + 1, 0), {"1048577 tensors", "1048576"}},
      {"tensors that are not there", Start(3, 0), {"tensor 0 of 3"}},
      {"2^64 - 1 metadata", Start(0, kMost), {"the key of metadata 0"}},
      {"2^63 metadata", Start(0, k2To63), {"the key of metadata 0"}},
      {"one metadata more than there are",
       Start(0, 2, GgufBytes().AddUint32("k", 1).metadata),
       {"metadata 1 of 2"}},

      // Keys and strings.
      {"key of 2^64 - 1 bytes", Start(0, 1, LittleEndian(kMost)), {"18446744073709551615 bytes"}},
      {"key of 2^63 bytes", Start(0, 1, LittleEndian(k2To63)), {"9223372036854775808 bytes"}},
      {"key past the end",
       Start(0, 1, LittleEndian<uint64_t>(9) + "k"),
       {"takes 9 bytes", "1 more"}},
      {"empty key", GgufBytes().AddUint32("", 1).Build(), {"metadata 0 of 1 is empty"}},
      {"key beyond what the format allows",
       GgufBytes().AddUint32(std::string(65536, 'k'), 1).Build(),
       {"65536 bytes", "65535"}},
      {"key twice",
       GgufBytes().AddUint32("k", 1).AddUint32("k", 1).Build(),
       {"metadata 'k' appears twice"}},
      {"key without a type", Start(0, 1, GgufString("k")), {"metadata 'k''s type"}},
      {"type 13", Start(0, 1, GgufString("k") + LittleEndian<uint32_t>(13)), {"type 13"}},
      {"type 2^32 - 1", Start(0, 1, GgufString("k") + LittleEndian(~0u)), {"type 4294967295"}},
      {"number past the end",
       Start(0, 1, GgufString("k") + GgufTypeOf(GgufType::kUint64) + "1234567"),
       {"metadata 'k' takes 8 bytes", "7 more"}},
      {"bool of value 2", OneValue(GgufType::kBool, "\x02"), {"a bool of value 2"}},
      {"bool of value 255", OneValue(GgufType::kBool, "\xff"), {"a bool of value 255"}},
      {"string of 2^64 - 1 bytes",
       OneValue(GgufType::kString, LittleEndian(kMost)),
       {"metadata 'k'", "18446744073709551615"}},
      {"string of 2^64 - 8 bytes, whose end wraps around",
       OneValue(GgufType::kString, LittleEndian(kMost - 7)),
       {"18446744073709551608"}},
      {"string past the end",
       OneValue(GgufType::kString, LittleEndian<uint64_t>(1000) + "abc"),
       {"takes 1000 bytes"}},
      {"key with control characters",
       GgufBytes().Add("a\n\x1b[2J", GgufType::kBool, "\x02").Build(),
       {"'a\\x0a\\x1b[2J'"}},

      // Arrays.
      {"array without a type",
       Start(0, 1, GgufString("k") + GgufTypeOf(GgufType::kArray)),
       {"metadata 'k''s type"}},
      {"array of type 13",
       OneValue(GgufType::kArray, LittleEndian<uint32_t>(13) + LittleEndian<uint64_t>(0)),
       {"type 13"}},
      {"array of 2^64 - 1 bytes",
       OneValue(GgufType::kArray, GgufTypeOf(GgufType::kUint8) + LittleEndian(kMost)),
       {"18446744073709551615 elements"}},
      {"array of 2^61 numbers, whose bytes wrap around",
       OneValue(GgufType::kArray, GgufTypeOf(GgufType::kUint64) + LittleEndian(1ull << 61)),
       {"2305843009213693952 elements of at least 8 bytes"}},
      {"array of 2^63 strings",
       OneValue(GgufType::kArray, GgufTypeOf(GgufType::kString) + LittleEndian(k2To63)),
       {"elements of at least 8 bytes"}},
      {"array of 2^63 arrays",
       OneValue(GgufType::kArray, GgufTypeOf(GgufType::kArray) + LittleEndian(k2To63)),
       {"elements of at least 12 bytes"}},
      {"array of numbers past the end",
       OneValue(GgufType::kArray,
                GgufTypeOf(GgufType::kInt32) + LittleEndian<uint64_t>(100) + "1234"),
       {"100 elements of at least 4 bytes"}},
      {"array whose last string is cut",
       Start(0, 1,
             GgufString("k") + GgufTypeOf(GgufType::kArray) + GgufTypeOf(GgufType::kString) +
                 LittleEndian<uint64_t>(2) + GgufString("ok") + LittleEndian<uint64_t>(5) + "no"),
       {"takes 5 bytes", "2 more"}},
      {"arrays 5 deep", Nested(5), {"more than 4 deep"}},
      {"arrays 1,000 deep", Nested(1000), {"more than 4 deep"}},
      {"array of bools with a 3",
       OneValue(GgufType::kArray, GgufArray(GgufType::kBool, {"\x01", "\x03"})),
       {"a bool of value 3"}},

      // Tensors' names, sizes and types.
      {"tensor without a name", Start(1, 0, GgufString("")), {"tensor 0 of 1 has no name"}},
      {"name of 2^63 bytes", Start(1, 0, LittleEndian(k2To63)), {"the name of tensor 0 of 1"}},
      {"name of 1,025 bytes",
       GgufBytes().List(std::string(1025, 't'), {1}, kGgmlF32, 0).Build(),
       {"1025 bytes", "1024"}},
      {"name twice", Twice("t", "t"), {"tensor 't' appears twice"}},
      {"9 dimensions", OneTensor(std::vector<uint64_t>(9, 1), kGgmlF32, 0), {"9 dimensions"}},
      {"2^32 - 1 dimensions",
       Start(1, 0, GgufString("t") + LittleEndian(~0u)),
       {"4294967295 dimensions"}},
      {"sizes past the end",
       Start(1, 0, GgufString("t") + LittleEndian<uint32_t>(2) + LittleEndian<uint64_t>(1)),
       {"tensor 't''s sizes"}},
      {"size of 2^63", OneTensor({k2To63}, kGgmlF32, 0), {"more elements than 63 bits"}},
      {"size of 2^64 - 1", OneTensor({kMost}, kGgmlF32, 0), {"more elements than 63 bits"}},
      {"sizes whose product overflows",
       OneTensor({1ull << 32, 1ull << 32}, kGgmlF32, 0),
       {"more elements than 63 bits"}},
      {"sizes whose product overflows, times none",
       OneTensor({0, 1ull << 62, 1ull << 62}, kGgmlF32, 0),
       {"more elements than 63 bits"}},
      {"bytes that overflow", OneTensor({1ull << 62}, kGgmlF32, 0), {"more bytes than 63 bits"}},
      {"no type", Start(1, 0, GgufString("t") + LittleEndian<uint32_t>(0)), {"tensor 't''s type"}},
      {"a type that ggml does not have", OneTensor({1}, 1000, 0), {"type 1000"}, unread},
      {"a type that ggml took back", OneTensor({32}, 4, 0), {"type 4"}, unread},
      {"a type that is not read", OneTensor({256}, 16, 0), {"'t'", "IQ2_XXS"}, unread},
      {"rows of half a block", OneTensor({16}, kGgmlQ8_0, 0), {"rows of 16", "Q8_0 has 32"}},
      {"rows of 1.5 superblocks",
       OneTensor({384, 2}, kGgmlQ4_K, 0),
       {"rows of 384", "Q4_K has 256"}},
      {"a scalar of blocks", OneTensor({}, kGgmlQ8_0, 0), {"rows of 1 ", "Q8_0"}},

      // Where tensors lie.
      {"no offset",
       Start(1, 0, GgufString("t") + LittleEndian<uint32_t>(0) + LittleEndian<uint32_t>(0)),
       {"tensor 't''s offset"}},
      {"offset of 2^63", OneTensor({1}, kGgmlF32, k2To63), {"beyond 63 bits"}},
      {"offset of 2^64 - 32", OneTensor({1}, kGgmlF32, kMost - 31), {"beyond 63 bits"}},
      {"offset whose end overflows",
       OneTensor({8}, kGgmlF32, (1ull << 63) - 32),
       {"'t'", "the file is cut"}},
      {"offset off the alignment", OneTensor({1}, kGgmlF32, 4), {"4 bytes", "multiple of 32"}},
      {"offset past the end", OneTensor({1}, kGgmlF32, 96), {"from 96 on", "has 64"}},
      {"tensor one byte too long", OneTensor({17}, kGgmlF32, 0), {"68 bytes", "has 64"}},
      {"data cut", Cut(OneTensor({16}, kGgmlF32, 0), 1), {"64 bytes", "has 63"}},
      {"file ends with the header", Tensors({0}, 0), {"32 bytes", "has 0"}},
      {"tensors at one place", Tensors({0, 0}, 64), {"inside of tensor"}},
      {"tensors that overlap by a part", Tensors({32, 0, 32}, 96), {"inside of tensor"}},

      // The alignment.
      {"alignment 0", Aligned(0), {"general.alignment", "is 0"}},
      {"alignment 3", Aligned(3), {"is 3", "power of two"}},
      {"alignment 2^31", Aligned(1u << 31), {"is 2147483648"}},
      {"alignment that is a string",
       GgufBytes().AddString("general.alignment", "32").Build(),
       {"general.alignment", "string"}},
      {"alignment of 2^63",
       GgufBytes().Add("general.alignment", GgufType::kUint64, LittleEndian(k2To63)).Build(),
       {"general.alignment", "below 2^63"}},
      {"negative alignment",
       GgufBytes().Add("general.alignment", GgufType::kInt32, LittleEndian(-32)).Build(),
       {"is -32"}},
  };
}

TEST(GgufMalformedTest, EachIsRefusedWithItsReason) {
  const std::string path = FreshFolder() + "/bad.gguf";
  const std::vector<Case> cases = Cases();
  EXPECT_GE(cases.size(), 60u);
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    WriteTestFile(path, test.bytes);
    const absl::Status status = OpenGguf(path).status();
    EXPECT_THAT(status, StatusIs(test.code, HasSubstr(path)));
    for (const char* part : test.says) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    EXPECT_LT(status.message().size(), 1000u);
  }
}

// The table's cases fail for what they say only if these, close to them, pass.
TEST(GgufMalformedTest, NeighboursAreAccepted) {
  const struct {
    const char* name;
    std::string bytes;
    size_t tensors;
  } kCases[] = {
      {"nothing", Start(0, 0), 0},
      {"version 2", Version(2), 0},
      {"a long key", GgufBytes().AddUint32(std::string(65535, 'k'), 1).Build(), 0},
      {"an empty string", OneValue(GgufType::kString, GgufString("")), 0},
      {"arrays 4 deep", Nested(4), 0},
      {"a long name", GgufBytes().AddTensor(std::string(1024, 't'), {1}, 0, "abcd").Build(), 1},
      {"two names", Twice("t", "u"), 2},
      {"8 dimensions", OneTensor(std::vector<uint64_t>(8, 1), kGgmlF32, 0), 1},
      {"a scalar", OneTensor({}, kGgmlF32, 0), 1},
      {"no elements", OneTensor({0}, kGgmlF32, 0), 1},
      {"no elements at the end", OneTensor({0}, kGgmlF32, 64), 1},
      {"a block", OneTensor({32}, kGgmlQ8_0, 0), 1},
      {"the whole data", OneTensor({16}, kGgmlF32, 0), 1},
      {"not in order", Tensors({64, 0, 32}, 96), 3},
      {"a gap, and bytes at the end", Tensors({64, 0}, 128), 2},
      {"alignment 1", GgufBytes().AddUint32("general.alignment", 1).Build(), 0},
  };
  const std::string path = FreshFolder() + "/good.gguf";
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.name);
    WriteTestFile(path, test.bytes);
    SKEIN_ASSERT_OK_AND_ASSIGN(const GgufModel model, OpenGguf(path));
    EXPECT_EQ(model.tensors->tensors().size(), test.tensors);
  }
}

// The smallest head is the whole header: one byte less is asked for again, never read past.
TEST(GgufMalformedTest, CutHeadsAskForMore) {
  GgufBytes bytes;
  bytes.AddString("text", "abc")
      .Add("words", GgufType::kArray, GgufStrings({"x", "yz"}))
      .AddTensor("t", {1}, kGgmlF32, "abcd");
  const std::string file = bytes.Build();
  const size_t header = bytes.Header().size();
  const auto parse = [&file](size_t head_bytes) {
    // A copy of its own: sanitizers see what is read beyond it.
    const std::vector<std::byte> head(reinterpret_cast<const std::byte*>(file.data()),
                                      reinterpret_cast<const std::byte*>(file.data()) + head_bytes);
    return ParseGgufHeader(head, static_cast<int64_t>(file.size())).status();
  };
  for (size_t head = 0; head < header; ++head) EXPECT_TRUE(absl::IsOutOfRange(parse(head))) << head;
  SKEIN_EXPECT_OK(parse(header));
}

}  // namespace
}  // namespace skein::model

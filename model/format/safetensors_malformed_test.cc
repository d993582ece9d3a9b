// Files that lie: each must be refused with its path, tensor, offset and reason.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "model/format/safetensors.h"
#include "model/format/test_files.h"

namespace skein::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// One tensor `a` of 2 floats, with these fields, over 8 bytes of data.
std::string One(const std::string& fields) {
  return SafetensorsBytes("{\"a\":{" + fields + "}}", "12345678");
}

// Tensors of 1 float with these offsets, over `data_bytes` of data.
std::string Floats(const std::vector<std::pair<int, int>>& offsets, size_t data_bytes) {
  std::string header;
  for (const auto& [begin, end] : offsets) {
    absl::StrAppend(&header, header.empty() ? "{" : ",", "\"t", begin,
                    "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[", begin, ",", end,
                    "]}");
  }
  return SafetensorsBytes(header + "}", std::string(data_bytes, 'x'));
}

std::string ManyTensors(int count) {
  std::string header = "{";
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&header, i == 0 ? "" : ",", "\"", i,
                    "\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}");
  }
  return SafetensorsBytes(header + "}", "");
}

struct Case {
  const char* name;
  std::string bytes;
  std::vector<const char*> says;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

std::vector<Case> Cases() {
  const std::string good = One(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])");
  return {
      {"empty file", "", {"0 bytes", "offset 0"}},
      {"7 bytes", "\x02\0\0\0\0\0\0", {"offset 0"}},
      {"header length 0", LittleEndian64(0) + "{}", {"length at offset 0 is 0"}},
      {"header length past the end", LittleEndian64(3) + "{}", {"is 3, not in [2, 2]"}},
      {"header length 2^64 - 1", LittleEndian64(~0ull) + "{}", {"18446744073709551615"}},
      {"header length 2^63", LittleEndian64(1ull << 63) + "{}", {"9223372036854775808"}},
      {"no brace", SafetensorsBytes("[]", ""), {"offset 8", "'{'"}},
      {"leading space", SafetensorsBytes(" {}", ""), {"offset 8", "'{'"}},
      {"a zip file", "PK\x03\x04 and more bytes of it", {"not a safetensors file"}},
      {"cut JSON", SafetensorsBytes(R"({"a":{"dtype")", ""), {"bad JSON at offset"}},
      {"text after the JSON", SafetensorsBytes("{}x", ""), {"bad JSON at offset 10"}},
      {"zeros after the JSON", SafetensorsBytes(std::string("{}\0\0", 4), ""), {"bad JSON"}},
      {"invalid UTF-8", SafetensorsBytes("{\"\xff\":1}", ""), {"bad JSON at offset"}},
      {"truncated data",
       good.substr(0, good.size() - 1),
       {"'a' at offset 9: ", "[0, 8]", "the 7 bytes of data at offset 62"}},
      {"bytes after the data", good + "9", {"end at offset 70, the file at 71"}},
      {"no tensors, but data", SafetensorsBytes("{}", "1234"), {"end at offset 10"}},
      {"deep arrays",
       SafetensorsBytes("{\"a\":" + std::string(1 << 20, '['), ""),
       {"'a' at offset 9: is an array"}},
      {"deep objects",
       SafetensorsBytes(
           [] {
             std::string text;
             for (int i = 0; i < 100000; ++i) text += "{\"dtype\":";
             return text;
           }(),
           ""),
       {"'dtype' at offset 9: dtype holds an object"}},
      {"nested shape",
       One(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"),
       {"'a' at offset 9: shape holds an array"}},
      {"tensor is a number", SafetensorsBytes(R"({"a":1})", ""), {"'a' at offset 9: is a number"}},
      {"tensor is null", SafetensorsBytes(R"({"a":null})", ""), {"'a' at offset 9: is null"}},
      {"no dtype", One(R"("shape":[2],"data_offsets":[0,8])"), {"'a' at offset 9: has no dtype"}},
      {"no shape", One(R"("dtype":"F32","data_offsets":[0,8])"), {"'a' at offset 9: has no shape"}},
      {"no offsets", One(R"("dtype":"F32","shape":[2])"), {"'a' at offset 9: has no data_offsets"}},
      {"dtype is a number",
       One(R"("dtype":3,"shape":[2],"data_offsets":[0,8])"),
       {"'a' at offset 9: dtype holds a number"}},
      {"unknown dtype",
       One(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"),
       {"'a' at offset 9: ", "F33"}},
      {"lower case dtype",
       One(R"("dtype":"f32","shape":[2],"data_offsets":[0,8])"),
       {"'a' at offset 9: ", "'f32'"}},
      {"dtype that is not read",
       One(R"("dtype":"U64","shape":[1],"data_offsets":[0,8])"),
       {"'a' at offset 9: is stored as U64"},
       absl::StatusCode::kUnimplemented},
      {"negative size",
       One(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"),
       {"'a' at offset 9: shape holds a negative number"}},
      {"fractional size",
       One(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"),
       {"'a' at offset 9: shape holds a fraction"}},
      {"size beyond 64 bits",
       One(R"("dtype":"F32","shape":[36893488147419103232],"data_offsets":[0,8])"),
       {"'a' at offset 9: shape holds", "beyond 64 bits"}},
      {"size beyond 63 bits",
       One(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])"),
       {"'a' at offset 9: ", "more elements than"}},
      {"product that overflows to the right size",
       One(R"("dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8])"),
       {"'a' at offset 9: ", "more elements than"}},
      {"bytes that overflow to the right size",
       One(R"("dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8])"),
       {"'a' at offset 9: ", "more elements than"}},
      {"too many dimensions",
       One(R"("dtype":"F32","shape":[2,1,1,1,1,1,1,1,1],"data_offsets":[0,8])"),
       {"'a' at offset 9: shape has more than 8"}},
      {"shape larger than its bytes",
       One(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"),
       {"'a' at offset 9: ", "hold 8 bytes", "need 12"}},
      {"shape smaller than its bytes",
       One(R"("dtype":"BF16","shape":[2],"data_offsets":[0,8])"),
       {"'a' at offset 9: ", "hold 8 bytes", "need 4"}},
      {"one offset",
       One(R"("dtype":"F32","shape":[2],"data_offsets":[0])"),
       {"'a' at offset 9: ", "two numbers"}},
      {"three offsets",
       One(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"),
       {"'a' at offset 9: data_offsets has more than 2"}},
      {"offsets as text",
       One(R"("dtype":"F32","shape":[2],"data_offsets":["0","8"])"),
       {"'a' at offset 9: data_offsets holds a string"}},
      {"end before begin",
       One(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"),
       {"'a' at offset 9: ", "[8, 0]"}},
      {"end past the file",
       One(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])"),
       {"'a' at offset 9: ", "[0, 16]", "8 bytes of data"}},
      {"end past 63 bits",
       One(R"("dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,18446744073709551615])"),
       {"'a' at offset 9: ", "18446744073709551608"}},
      {"begin wraps around",
       One(R"("dtype":"F32","shape":[2],"data_offsets":[18446744073709551612,4])"),
       {"'a' at offset 9: "}},
      {"unknown field",
       One(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1)"),
       {"'a' at offset 9: unknown key 'x'"}},
      {"field twice",
       One(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])"),
       {"'a' at offset 9: dtype appears twice"}},
      {"a quote in a name",
       SafetensorsBytes(R"({"q":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}, "\\\"q\"":1})",
                        ""),
       {R"('\"q"' at offset 63: is a number)"}},
      {"tensor twice", Floats({{0, 4}, {0, 4}}, 4), {"'t0' at offset 63: appears twice"}},
      {"same bytes twice",
       SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                            "b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                        "1234"),
       {"'b'", "inside of another tensor"}},
      {"overlap", Floats({{0, 4}, {3, 7}}, 7), {"'t3'", "inside of another tensor"}},
      {"hole at the start", Floats({{4, 8}}, 8), {"'t4'", "no tensor holds"}},
      {"hole in the middle", Floats({{0, 4}, {8, 12}}, 12), {"'t8'", "no tensor holds"}},
      {"empty tensor inside another",
       SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                            "b":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})",
                        "12345678"),
       {"'b'", "inside of another tensor"}},
      {"metadata with a number",
       SafetensorsBytes(R"({"__metadata__":{"a":1}})", ""),
       {"__metadata__ at offset 9 holds a number"}},
      {"metadata is text",
       SafetensorsBytes(R"({"__metadata__":"a"})", ""),
       {"__metadata__ at offset 9 holds a string"}},
      {"metadata nested",
       SafetensorsBytes(R"({"__metadata__":{"a":{"b":"c"}}})", ""),
       {"__metadata__ at offset 9 holds an object"}},
      {"metadata twice",
       SafetensorsBytes(R"({"__metadata__":{},"__metadata__":{}})", ""),
       {"__metadata__ appears twice, again at offset 27"}},
      {"metadata key twice",
       SafetensorsBytes(R"({"__metadata__":{"k":"1","k":"2"}})", ""),
       {"'k' of __metadata__ at offset 33 appears twice"}},
      {"absurdly many tensors",
       ManyTensors((1 << 20) + 1),
       {"more than 1048576 tensors, the first too many at offset "}},
  };
}

TEST(SafetensorsMalformedTest, EachIsRefusedWithItsReason) {
  const std::string path = FreshFolder() + "/bad.safetensors";
  for (const Case& test : Cases()) {
    SCOPED_TRACE(test.name);
    WriteTestFile(path, test.bytes);
    const absl::Status status = OpenSafetensors(path).status();
    EXPECT_THAT(status, StatusIs(test.code, AllOf(HasSubstr(path), HasSubstr("at offset "))));
    for (const char* part : test.says) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    EXPECT_LT(status.message().size(), 1000u);
  }
}

// The table's cases fail for what they say only if these, close to them, pass.
TEST(SafetensorsMalformedTest, NeighboursAreAccepted) {
  const struct {
    const char* name;
    std::string bytes;
    size_t tensors;
  } kCases[] = {
      {"two floats", One(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 1},
      {"fields in another order", One(R"("data_offsets":[0,8],"shape":[2],"dtype":"F32")"), 1},
      {"eight dimensions", One(R"("dtype":"F32","shape":[2,1,1,1,1,1,1,1],"data_offsets":[0,8])"),
       1},
      {"no tensors", SafetensorsBytes("{}", ""), 0},
      {"padded header", SafetensorsBytes("{}      ", ""), 0},
      {"metadata", SafetensorsBytes(R"({"__metadata__":{"format":"pt","b":"c"}})", ""), 0},
      {"not in order", Floats({{8, 12}, {0, 4}, {4, 8}}, 12), 3},
      {"empty tensors between",
       SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                            "b":{"dtype":"F32","shape":[0,9],"data_offsets":[4,4]},
                            "c":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},
                            "d":{"dtype":"F32","shape":[],"data_offsets":[4,8]}})",
                        "12345678"),
       4},
      {"many tensors", ManyTensors(10000), 10000},
  };
  const std::string path = FreshFolder() + "/good.safetensors";
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.name);
    WriteTestFile(path, test.bytes);
    SKEIN_ASSERT_OK_AND_ASSIGN(auto source, OpenSafetensors(path));
    EXPECT_EQ(source->tensors().size(), test.tensors);
  }
}

}  // namespace
}  // namespace skein::model

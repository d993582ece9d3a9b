#include "base/quantized_blocks.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/test_util.h"

namespace skein {
namespace {

// Blocks that ggml made of 4 rows of 1,024 numbers, and what it makes of them.
TEST(QuantizedBlocksTest, ValuesAreThoseOfGgml) {
  const char* shared = std::getenv("SKEIN_SHARED");
  if (shared == nullptr) GTEST_SKIP() << "no ../shared: SKEIN_SHARED is not set";
  for (DType dtype :
       {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K,
        DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS}) {
    // Files are named as types are, but for letters' case: q4_K, iq4_nl.
    std::string name(DTypeName(dtype));
    for (char& letter : name) {
      if (letter != 'K') letter = static_cast<char>(std::tolower(letter));
    }
    SCOPED_TRACE(name);
    const std::string path = absl::StrCat(shared, "/data/quants/", name);
    SKEIN_ASSERT_OK_AND_ASSIGN(const std::string blocks, ReadFile(path + ".blocks", 1 << 20));
    SKEIN_ASSERT_OK_AND_ASSIGN(const std::string bytes, ReadFile(path + ".f32", 1 << 20));
    std::vector<float> expected(bytes.size() / sizeof(float));
    std::memcpy(expected.data(), bytes.data(), bytes.size());
    ASSERT_EQ(expected.size(), 4096u);
    ASSERT_EQ(static_cast<int64_t>(blocks.size()), DTypeBytes(dtype, 4096));
    std::vector<float> values(expected.size());
    ConvertToFloat(dtype, blocks.data(), 4096, values.data());
    EXPECT_EQ(values, expected);
  }
}

// By hand, where no other truth is at hand: d = 2, m = 0.5.
TEST(QuantizedBlocksTest, BlocksOf32ByHand) {
  const std::string two("\x00\x40", 2);
  const std::string half("\x00\x38", 2);
  const auto values = [](DType dtype, const std::string& block) {
    EXPECT_EQ(static_cast<int64_t>(block.size()), BlockBytes(dtype));
    std::vector<float> out(static_cast<size_t>(BlockElements(dtype)));
    DequantizeBlocks(dtype, block.data(), 1, out.data());
    return out;
  };
  // Element 0 is 1, element 16 is 15 in its lower four bits.
  const std::string nibbles = "\xf1" + std::string(15, '\x00');
  EXPECT_EQ(values(DType::kQ4_0, two + nibbles)[0], 2.0f * (1 - 8));
  EXPECT_EQ(values(DType::kQ4_0, two + nibbles)[16], 2.0f * (15 - 8));
  EXPECT_EQ(values(DType::kQ4_1, two + half + nibbles)[16], 2.0f * 15 + 0.5f);
  // The fifth bit of element 16 only.
  const std::string fifth("\x00\x00\x01\x00", 4);
  EXPECT_EQ(values(DType::kQ5_0, two + fifth + nibbles)[0], 2.0f * (1 - 16));
  EXPECT_EQ(values(DType::kQ5_0, two + fifth + nibbles)[16], 2.0f * (31 - 16));
  EXPECT_EQ(values(DType::kQ5_1, two + half + fifth + nibbles)[16], 2.0f * 31 + 0.5f);
  EXPECT_EQ(values(DType::kQ8_0, two + std::string(31, '\x00') + "\xff")[31], -2.0f);
  EXPECT_EQ(values(DType::kIQ4_NL, two + nibbles)[16], 2.0f * 113);
  const std::string one_and_a_half("\x00\x00\xc0\x3f", 4);
  EXPECT_EQ(values(DType::kInt8, one_and_a_half + std::string(31, '\x00') + "\x80")[31], -192.0f);
  // Zero point 9.
  const std::string with_zero("\x09\x00\xc0\x3f", 4);
  EXPECT_EQ(values(DType::kInt4, with_zero + nibbles)[0], 1.5f * (1 - 9));
  EXPECT_EQ(values(DType::kInt4, with_zero + nibbles)[16], 1.5f * (15 - 9));
  // 448, the smallest number, and -1.125.
  const std::string floats = "\x7e\x01\xb9" + std::string(29, '\x00');
  EXPECT_EQ(values(DType::kFp8, one_and_a_half + floats)[0], 1.5f * 448);
  EXPECT_EQ(values(DType::kFp8, one_and_a_half + floats)[1], 1.5f * 0x1p-9f);
  EXPECT_EQ(values(DType::kFp8, one_and_a_half + floats)[2], 1.5f * -1.125f);
  EXPECT_EQ(values(DType::kFp8, one_and_a_half + floats)[3], 0.0f);
}

// All 256 of them, by the definition: no infinities, one NaN of each sign.
TEST(QuantizedBlocksTest, FloatsOf8Bits) {
  for (int bits = 0; bits < 256; ++bits) {
    const int exponent = bits >> 3 & 15;
    const int mantissa = bits & 7;
    const float magnitude = exponent == 0
                                ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    const float value = E4M3ToFloat(static_cast<uint8_t>(bits));
    EXPECT_EQ(IsE4M3Nan(static_cast<uint8_t>(bits)), (bits & 127) == 127);
    if ((bits & 127) == 127) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(value, bits < 128 ? magnitude : -magnitude) << bits;
    }
  }
}

}  // namespace
}  // namespace skein

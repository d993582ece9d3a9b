#include "kernels/testing/compare.h"

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::kernels {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Case {
  const char* name;
  float actual;
  float expected;
  float magnitude;
  double roundings;
  bool close;
};

TEST(CloseTest, Table) {
  const Case cases[] = {
      {"equal without tolerance", 1.5f, 1.5f, 0.0f, 0, true},
      {"inside", 1.0f + 0x1p-22f, 1.0f, 1.0f, 4, true},
      {"just outside", 1.0f + 0x1p-22f, 1.0f, 1.0f, 3.9, false},
      {"below", 1.0f - 0x1p-22f, 1.0f, 1.0f, 3.9, false},
      {"magnitude of the terms counts, not the sum", 0x1p-23f, 0.0f, 1.0f, 2, true},
      {"negative inside", -1.0f - 0x1p-22f, -1.0f, 1.0f, 4, true},
      {"negative outside", -1.0f - 0x1p-22f, -1.0f, 1.0f, 3, false},
      {"other sign", -1.0f, 1.0f, 1.0f, 4, false},
      {"zeros of both signs", -0.0f, 0.0f, 0.0f, 0, true},
      {"NaN for a number", kNan, 1.0f, 1.0f, 1e9, false},
      {"number for NaN", 1.0f, kNan, 1.0f, 1e9, false},
      {"NaN for NaN", kNan, kNan, 1.0f, 0, true},
      {"infinity for a number", kInf, 1.0f, 1.0f, 1e9, false},
      {"infinity for a number, infinite tolerance", kInf, 1.0f, kInf, 1, false},
      {"number for infinity", 1.0f, kInf, kInf, 1, false},
      {"infinity for infinity", kInf, kInf, 1.0f, 0, true},
      {"other infinity", -kInf, kInf, kInf, 1, false},
      {"NaN tolerance", 1.0f, 1.0f, kNan, 1, false},
      {"negative tolerance", 1.0f, 1.0f, -1.0f, 1, false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(
        static_cast<bool>(Close({&c.actual, 1}, {&c.expected, 1}, {&c.magnitude, 1}, c.roundings)),
        c.close);
  }
}

TEST(CloseTest, CountsAndNamesMismatches) {
  const std::vector<float> actual = {1, 2.5f, 3, kNan, 9};
  const std::vector<float> expected = {1, 2, 3, 4, 5};
  const std::vector<float> ones(5, 1.0f);
  const auto result = Close(actual, expected, ones, 1);
  ASSERT_FALSE(result);
  EXPECT_THAT(std::string(result.message()), HasSubstr("3 of 5 values differ"));
  EXPECT_THAT(std::string(result.message()), HasSubstr("first [1] 2.5, expected 2"));
  EXPECT_THAT(std::string(result.message()), HasSubstr("worst [4] 9, expected 5"));
}

TEST(CloseTest, SizesMustAgree) {
  const std::vector<float> two(2, 1.0f);
  const std::vector<float> three(3, 1.0f);
  EXPECT_FALSE(Close(two, three, two, 1));
  EXPECT_FALSE(Close(two, two, three, 1));
  EXPECT_TRUE(Close({}, {}, {}, 1));
}

TEST(SameBitsTest, TellsWhatFloatsDoNot) {
  const std::vector<float> values = {0.0f, 1.0f, kNan};
  EXPECT_TRUE(SameBits(values, values));
  EXPECT_FALSE(SameBits(std::vector<float>{-0.0f, 1.0f, kNan}, values));
  EXPECT_FALSE(SameBits(std::vector<float>{0.0f, 1.0f + 0x1p-23f, kNan}, values));
  EXPECT_FALSE(SameBits(std::vector<float>{0.0f, 1.0f, -kNan}, values));
  EXPECT_FALSE(SameBits(std::vector<float>{0.0f, 1.0f}, values));
}

}  // namespace
}  // namespace skein::kernels

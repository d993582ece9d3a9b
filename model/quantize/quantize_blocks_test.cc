#include "model/quantize/quantize_blocks.h"

#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/test_util.h"

namespace skein::model {
namespace {

constexpr DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,
                            DType::kQ8_0, DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,
                            DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS};

std::vector<float> Quantised(DType dtype, const std::vector<float>& in,
                             const std::vector<float>& importance = {}) {
  const auto count = static_cast<int64_t>(in.size());
  std::string blocks(static_cast<size_t>(DTypeBytes(dtype, count)), '\x55');
  QuantizeBlocks(dtype, in.data(), importance.empty() ? nullptr : importance.data(),
                 count / BlockElements(dtype), blocks.data());
  std::vector<float> out(in.size());
  ConvertToFloat(dtype, blocks.data(), count, out.data());
  return out;
}

double Error(const std::vector<float>& got, const std::vector<float>& want, size_t begin,
             size_t end) {
  double error = 0;
  for (size_t i = begin; i < end; ++i) error += std::pow(double{got[i]} - want[i], 2);
  return error;
}
double Error(const std::vector<float>& got, const std::vector<float>& want) {
  return Error(got, want, 0, want.size());
}

std::vector<float> ReadFloats(const std::string& path) {
  const absl::StatusOr<std::string> bytes = ReadFile(path, 1 << 20);
  SKEIN_EXPECT_OK(bytes.status());
  std::vector<float> values(bytes->size() / sizeof(float));
  std::memcpy(values.data(), bytes->data(), bytes->size());
  return values;
}

// The squared error of the blocks that ggml makes of the same four rows of 1,024 numbers: normal
// ones, one row with a block of zeros, one with outliers.
TEST(QuantizeBlocksTest, ErrorsAreNoLargerThanThoseOfGgml) {
  const char* shared = std::getenv("SKEIN_SHARED");
  if (shared == nullptr) GTEST_SKIP() << "no ../shared: SKEIN_SHARED is not set";
  const std::string folder = absl::StrCat(shared, "/data/quants/");
  const std::vector<float> in = ReadFloats(folder + "input.f32");
  ASSERT_EQ(in.size(), 4096u);
  for (const DType dtype : kTypes) {
    // Files are named as types are, but for letters' case: q4_K, iq4_nl.
    std::string name(DTypeName(dtype));
    for (char& letter : name) {
      if (letter != 'K') letter = static_cast<char>(std::tolower(letter));
    }
    SCOPED_TRACE(name);
    const std::vector<float> theirs = ReadFloats(absl::StrCat(folder, name, ".f32"));
    ASSERT_EQ(theirs.size(), in.size());
    const std::vector<float> ours = Quantised(dtype, in);
    EXPECT_LE(Error(ours, in), Error(theirs, in));
    for (size_t row = 0; row < 4; ++row) {
      EXPECT_LE(Error(ours, in, row * 1024, (row + 1) * 1024),
                1.05 * Error(theirs, in, row * 1024, (row + 1) * 1024))
          << "row " << row;
    }
  }
}

std::vector<float> Normal(size_t count, float scale = 0.02f) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Relative errors, of normal numbers: a type that errs more than this has lost a part of its bits.
// Half a step of n evenly spaced levels over +-2.5 sigma is the scale of each.
TEST(QuantizeBlocksTest, EachTypeHasTheErrorOfItsBits) {
  const std::vector<float> in = Normal(16384);
  const double norm = Error(std::vector<float>(in.size()), in);
  const auto relative = [&](DType dtype) {
    return std::sqrt(Error(Quantised(dtype, in), in) / norm);
  };
  EXPECT_LT(relative(DType::kQ8_0), 0.0055);
  EXPECT_LT(relative(DType::kQ6_K), 0.019);
  EXPECT_LT(relative(DType::kQ5_K), 0.038);
  EXPECT_LT(relative(DType::kQ5_1), 0.038);
  EXPECT_LT(relative(DType::kQ5_0), 0.044);
  EXPECT_LT(relative(DType::kQ4_K), 0.076);
  EXPECT_LT(relative(DType::kQ4_1), 0.076);
  EXPECT_LT(relative(DType::kIQ4_XS), 0.080);
  EXPECT_LT(relative(DType::kIQ4_NL), 0.080);
  EXPECT_LT(relative(DType::kQ4_0), 0.088);
  EXPECT_LT(relative(DType::kQ3_K), 0.155);
  EXPECT_LT(relative(DType::kQ2_K), 0.280);
}

// Numbers as large as F16's: scales and minima do not overflow.
TEST(QuantizeBlocksTest, TheLargestNumbers) {
  std::vector<float> in(1024);
  std::mt19937 random(3);
  for (float& value : in) value = -65504.0f * static_cast<float>(random() % 1000) / 999;
  in[7] = 65504;
  for (const DType dtype : kTypes) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    const std::vector<float> out = Quantised(dtype, in);
    EXPECT_LT(std::sqrt(Error(out, in) / Error(std::vector<float>(in.size()), in)), 0.3);
  }
}

// Numbers that blocks hold exactly stay as they are.
TEST(QuantizeBlocksTest, WhatBlocksHoldStays) {
  for (const DType dtype : kTypes) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    EXPECT_EQ(Quantised(dtype, std::vector<float>(512)), std::vector<float>(512));
    // Two values a subblock, one of them zero, but where the table of levels has none.
    const bool is_table = dtype == DType::kIQ4_NL || dtype == DType::kIQ4_XS;
    std::vector<float> in(512);
    for (size_t i = 0; i < in.size(); ++i) {
      in[i] = i % 3 == 0 ? -127.0f / 256 : (is_table ? 25.0f / 256 : 0.0f);
    }
    // Scales are rounded to 11 bits, and multiplied by integers of 4 or 6.
    EXPECT_LT(Error(Quantised(dtype, in), in), 1e-5 * Error(std::vector<float>(in.size()), in));
  }
}

// Blocks far from zero, wide or narrow, by what each type can do there.
TEST(QuantizeBlocksTest, NumbersOfOneSign) {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> within(-1, 1);
  for (const DType dtype : kTypes) {
    const bool has_min = dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ2_K ||
                         dtype == DType::kQ4_K || dtype == DType::kQ5_K;
    for (const float middle : {0.5f, -0.5f}) {
      for (const float spread : {0.0f, 1e-3f, 1e-2f, 0.3f}) {
        SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " " << middle << " " << spread);
        std::vector<float> in(1024);
        for (float& value : in) value = middle * (1 + spread * within(random));
        const double relative =
            std::sqrt(Error(Quantised(dtype, in), in) / Error(std::vector<float>(in.size()), in));
        // One level for all errs by the spread, and by the rounding of scales; a minimum below
        // zero, or one of any sign, leaves levels for what differs. Positive numbers have the
        // levels above zero alone in superblocks.
        const bool any_sign = dtype == DType::kQ4_1 || dtype == DType::kQ5_1;
        const bool fine = any_sign || (has_min && middle < 0);
        EXPECT_LT(relative, fine ? 0.15 * spread + 0.006 : spread + 0.02);
      }
    }
  }
}

TEST(QuantizeBlocksTest, ErrorsFallWhereImportanceIs) {
  const std::vector<float> in = Normal(4096);
  std::vector<float> importance(in.size());
  for (size_t i = 0; i < importance.size(); ++i) importance[i] = i % 4 == 0 ? 100.0f : 0.01f;
  const auto of_important = [&](const std::vector<float>& got) {
    double error = 0;
    for (size_t i = 0; i < in.size(); i += 4) error += std::pow(double{got[i]} - in[i], 2);
    return error;
  };
  for (const DType dtype : kTypes) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    const double alike = of_important(Quantised(dtype, in));
    const double weighed = of_important(Quantised(dtype, in, importance));
    EXPECT_LT(weighed, 0.85 * alike);
    // What weighs the same throughout changes nothing, whatever its size.
    for (const float all : {8.0f, 1e-30f, 1e30f}) {
      EXPECT_NEAR(of_important(Quantised(dtype, in, std::vector<float>(in.size(), all))), alike,
                  1e-2 * alike)
          << all;
    }
  }
}

// A column that matters more than all others together has the error of a scale of its own, however
// much more it matters.
TEST(QuantizeBlocksTest, OneColumnMayOutweighTheRest) {
  const std::vector<float> in = Normal(4096);
  for (const DType dtype : kTypes) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    const auto of_column = [&](float weight) {
      std::vector<float> importance(in.size(), 1.0f);
      for (size_t i = 5; i < in.size(); i += 256) importance[i] = weight;
      const std::vector<float> got = Quantised(dtype, in, importance);
      double error = 0;
      for (size_t i = 5; i < in.size(); i += 256) error += std::pow(double{got[i]} - in[i], 2);
      return error;
    };
    const double alike = of_column(1);
    for (const float weight : {1e4f, 1e6f, 1e8f, 1e12f}) {
      SCOPED_TRACE(weight);
      EXPECT_LT(of_column(weight), 0.1 * alike);
    }
  }
}

// Extremes of what is allowed: blocks are finite, and as good as at any other scale.
TEST(QuantizeBlocksTest, ScalesOfAnySize) {
  for (const DType dtype : kTypes) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    for (const float scale : {1e-30f, 1e-6f, 1e-2f, 1e3f, 1.6e4f}) {
      SCOPED_TRACE(scale);
      const std::vector<float> in = Normal(1024, scale);
      const std::vector<float> out = Quantised(dtype, in);
      for (const float value : out) ASSERT_TRUE(std::isfinite(value));
      const double relative = std::sqrt(Error(out, in) / Error(std::vector<float>(in.size()), in));
      // F16 has no scales for tiny numbers, which become zeros.
      EXPECT_LT(relative, scale < 1e-3f ? 1.01 : 0.3);
    }
  }
}

}  // namespace
}  // namespace skein::model

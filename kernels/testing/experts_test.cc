// Mixtures of experts on every back end: numbers worked out by hand, and sums in double.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/random_blocks.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/harness.h"

namespace skein::kernels {
namespace {

class ExpertsTest : public testing::TestWithParam<BackendCase> {
 protected:
  const std::unique_ptr<Backend> backend_ = GetParam().make();
};

Batch Rows(int64_t rows) { return BatchOf({{{0}, 0, std::vector<int32_t>(rows, 0)}}); }

std::vector<float> Routes(Backend& backend, const std::vector<float>& logits, int64_t experts,
                          int32_t chosen, bool normalized) {
  TestProgram p;
  const BufferId in = p.AddBuffer(experts);
  const BufferId out = p.AddBuffer(2 * chosen);
  p.Add(RouteOp{in, chosen, normalized, out});
  p.Bind(backend);
  p.Set(in, logits);
  const int64_t rows = static_cast<int64_t>(logits.size()) / experts;
  SKEIN_EXPECT_OK(p.Run(Rows(rows)));
  return p.Get(out, rows);
}

void ExpectNear(const std::vector<float>& actual, const std::vector<float>& expected) {
  EXPECT_TRUE(Close(actual, expected, std::vector<float>(expected.size(), 1.0f), 2));
}

TEST_P(ExpertsTest, ARowTakesItsLargestInTheOrderOfTheirNumbers) {
  const float two = std::log(2.0f);
  // e^logit is 2, 1, 8, 4; then 1, 16, 4, 1.
  const std::vector<float> logits = {two, 0, 3 * two, 2 * two, 0, 4 * two, 2 * two, 0};
  ExpectNear(Routes(*backend_, logits, 4, 2, /*normalized=*/true),
             {2, 3, 8.0f / 12, 4.0f / 12, 1, 2, 16.0f / 20, 4.0f / 20});
  ExpectNear(Routes(*backend_, logits, 4, 2, /*normalized=*/false),
             {2, 3, 8.0f / 15, 4.0f / 15, 1, 2, 16.0f / 22, 4.0f / 22});
  ExpectNear(Routes(*backend_, logits, 8, 8, /*normalized=*/true),
             {0, 1, 2, 3, 4, 5, 6, 7, 2.0f / 37, 1.0f / 37, 8.0f / 37, 4.0f / 37, 1.0f / 37,
              16.0f / 37, 4.0f / 37, 1.0f / 37});
}

TEST_P(ExpertsTest, OfEqualOnesTheFirstAreTaken) {
  ExpectNear(Routes(*backend_, {1, 3, 3, 3, 1}, 5, 2, true), {1, 2, 0.5f, 0.5f});
  const float inf = std::numeric_limits<float>::infinity();
  ExpectNear(Routes(*backend_, {-inf, 0, -inf, -inf}, 4, 3, true), {0, 1, 2, 0, 1, 0});
  // Large ones do not overflow.
  ExpectNear(Routes(*backend_, {1e30f, -1e30f, 90000}, 3, 2, false), {0, 2, 1, 0});
}

TEST_P(ExpertsTest, ANanIsNotLost) {
  const std::vector<float> routes = Routes(*backend_, {1, NAN, 3, 2}, 4, 2, true);
  EXPECT_EQ(routes[0], 2);
  EXPECT_EQ(routes[1], 3);
  EXPECT_TRUE(std::isnan(routes[2]) && std::isnan(routes[3]));
}

// 5 experts of which this rank has [first, first + count), 3 a row.
struct Mixture {
  static constexpr int64_t kCols = 96, kInner = 64, kExperts = 5;
  static constexpr int32_t kChosen = 3;

  Mixture(DType dtype, GateActivation activation, int32_t first, int32_t count) {
    in = p.AddBuffer(kCols);
    routes = p.AddBuffer(2 * kChosen);
    out = p.AddBuffer(kChosen * kCols);
    WeightId weights = -1;
    for (int32_t expert = first; expert < first + count; ++expert) {
      const auto add = [&](int64_t rows, int64_t cols, uint32_t seed, int32_t blocks) {
        const WeightSpec spec = {
            .rows = rows, .cols = cols, .dtype = dtype, .inner_blocks = blocks};
        if (!IsQuantized(dtype)) return p.AddWeight(spec, RandomFloats(seed, rows * cols, 0.3f));
        return p.AddStored(spec,
                           RandomBlocks(seed, dtype, rows * cols / BlockElements(dtype), 0.03f));
      };
      const auto seed = static_cast<uint32_t>(10 * expert);
      const WeightId gate_up = add(2 * kInner, kCols, seed, 1);
      if (weights < 0) weights = gate_up;
      add(kCols, kInner, seed + 1, 2);
    }
    p.Add(ExpertsOp{in, routes, first, count, weights, out, activation});
  }

  std::vector<float> Run(Backend& backend, const std::vector<float>& x,
                         const std::vector<float>& routed) {
    p.Bind(backend);
    p.Set(in, x);
    p.Set(routes, routed);
    const int64_t rows = static_cast<int64_t>(x.size()) / kCols;
    SKEIN_EXPECT_OK(p.Run(Rows(rows)));
    return p.Get(out, rows);
  }

  TestProgram p;
  BufferId in, routes, out;
};

// Row r leaves out experts r % 5 and (r + 2) % 5, so that all are chosen, but never by all rows.
std::vector<float> SomeRoutes(int64_t rows) {
  std::vector<float> routes;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t expert = 0; expert < Mixture::kExperts; ++expert) {
      const bool absent = expert == r % 5 || expert == (r + 2) % 5;
      if (!absent) routes.push_back(static_cast<float>(expert));
    }
    for (const float weight : {0.5f, 0.25f, 0.125f}) routes.push_back(weight);
  }
  return routes;
}

TEST_P(ExpertsTest, EachRowHasItsExperts) {
  for (const GateActivation activation : {GateActivation::kSilu, GateActivation::kGeluTanh}) {
    for (const DType dtype : {DType::kBF16, DType::kQ8_0, DType::kFp8}) {
      for (const int64_t rows : {1, 7, 40}) {
        SCOPED_TRACE(absl::StrCat(std::string(DTypeName(dtype)), ", ", rows));
        const std::vector<float> x = RandomFloats(3, rows * Mixture::kCols, 0.5f);
        Mixture mixture(dtype, activation, 0, 5);
        mixture.p.program.exact = true;
        const std::vector<float> actual = mixture.Run(*backend_, x, SomeRoutes(rows));
        const std::vector<float> expected =
            mixture.Run(*MakeReferenceBackend(), x, SomeRoutes(rows));
        // Sums of 96 and of 64 products, of which each magnitude is below 20.
        EXPECT_TRUE(Close(actual, expected, std::vector<float>(expected.size(), 20.0f), 200));
      }
    }
  }
}

// A row's bits do not depend on the others that an expert has, nor on which experts are elsewhere:
// their places are zeros.
TEST_P(ExpertsTest, RowsAndRanksAreApart) {
  for (const DType dtype : {DType::kF32, DType::kQ4_0}) {
    const int64_t rows = 23;
    const std::vector<float> x = RandomFloats(5, rows * Mixture::kCols);
    const std::vector<float> routes = SomeRoutes(rows);
    Mixture all(dtype, GateActivation::kSilu, 0, 5);
    const std::vector<float> whole = all.Run(*backend_, x, routes);
    for (const int64_t row : {0, 4, 22}) {
      const std::vector<float> alone =
          all.Run(*backend_, {x.begin() + row * 96, x.begin() + (row + 1) * 96},
                  {routes.begin() + row * 6, routes.begin() + (row + 1) * 6});
      EXPECT_TRUE(SameBits(alone, {whole.begin() + row * 288, whole.begin() + (row + 1) * 288}));
    }
    Mixture middle(dtype, GateActivation::kSilu, 1, 2);
    const std::vector<float> part = middle.Run(*backend_, x, routes);
    std::vector<float> expected = whole;
    for (int64_t slot = 0; slot < rows * 3; ++slot) {
      const float expert = routes[slot / 3 * 6 + slot % 3];
      if (expert == 1 || expert == 2) continue;
      std::fill_n(expected.begin() + slot * 96, 96, 0.0f);
    }
    EXPECT_TRUE(SameBits(part, expected));
  }
}

TEST_P(ExpertsTest, TheirSumIsWeighted) {
  TestProgram p;
  const BufferId in = p.AddBuffer(3 * 2);
  const BufferId routes = p.AddBuffer(2 * 3);
  const BufferId out = p.AddBuffer(2);
  p.Add(CombineExpertsOp{in, routes, out});
  p.Bind(*backend_);
  p.Set(in, {1, 2, 10, 20, 100, 200, 3, 4, 5, 6, 7, 8});
  p.Set(routes, {0, 1, 4, 0.5f, 0.25f, 2, 1, 2, 3, 1, -1, 0});
  SKEIN_ASSERT_OK(p.Run(Rows(2)));
  EXPECT_EQ(p.Get(out, 2), (std::vector<float>{203, 406, -2, -2}));
  // One after the other: in another order the ones are lost.
  p.Set(in, {1e8f, -1e8f, -1e8f, 1e8f, 1, 1});
  p.Set(routes, {0, 1, 4, 1, 1, 1});
  SKEIN_ASSERT_OK(p.Run(Rows(1)));
  EXPECT_EQ(p.Get(out, 1), (std::vector<float>{1, 1}));
}

TEST_P(ExpertsTest, WhatAllRowsHaveIsGated) {
  TestProgram p;
  const BufferId gate = p.AddBuffer(1);
  const BufferId delta = p.AddBuffer(2);
  const BufferId buffer = p.AddBuffer(2);
  p.Add(AddGatedOp{gate, delta, buffer});
  p.Bind(*backend_);
  p.Set(gate, {0, std::log(3.0f), -100});
  p.Set(delta, {2, 4, 8, -8, 1, 1});
  p.Set(buffer, {10, 20, 30, 40, 50, 60});
  SKEIN_ASSERT_OK(p.Run(Rows(3)));
  EXPECT_TRUE(Close(p.Get(buffer, 3), std::vector<float>{11, 22, 36, 34, 50, 60},
                    std::vector<float>(6, 60.0f), 4));
}

INSTANTIATE_TEST_SUITE_P(All, ExpertsTest, testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::kernels

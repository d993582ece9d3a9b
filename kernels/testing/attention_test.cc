// Holds rotation and attention on every back end of the CPU against the reference, over heads,
// pages, caches, windows and caps.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/harness.h"
#include "kernels/testing/operations_fixture.h"

namespace skein::kernels {
namespace {

class AttentionTest : public OperationsTest {};

struct AttentionCase {
  int32_t heads, kv_heads, head_dim;
  int64_t page_size;
  KvDType dtype;
  int32_t window = 0;
  int32_t rotated = 0;  // dimensions; 0: all
  float magnitude = 1;
  float softcap = 0;
};

constexpr float kScoreScale = 0.3f;
// A rotation rounds two products and a sum, of coordinates up to 2 whose rotations are up to 2
// sqrt(2).
constexpr double kRotationRoundings = 3;
constexpr float kMostRotated = 2.9f;

// The queries, keys and values of a sequence's rows so far, after rotation.
using SequenceRows = std::vector<std::vector<float>>;

// Returns how far an output of the last row may be off, in units of 2^-24, by head. A score is a
// sum of products of coordinates that were rounded before, then scaled, and lessened by the largest
// one; its error shifts a weight by as much, relatively. A weighted mean shifts by twice that at
// most, in units of its values, and takes a sum over the positions itself, as its weights' sum
// does; then an exponential and a quotient. An int8 slot's scale is one rounding more in each score
// and weight. A soft cap is off by 6 roundings of itself.
std::vector<float> AttentionErrors(const AttentionCase& c, const SequenceRows& rows) {
  std::vector<float> errors;
  for (int32_t h = 0; h < c.heads; ++h) {
    const float* query = &rows.back()[h * c.head_dim];
    const int64_t kv = (c.heads + h / (c.heads / c.kv_heads)) * c.head_dim;
    double score_error = 0, value = 0;
    for (const std::vector<float>& row : rows) {
      double score = 0, squares = 0, lengths = 0;
      for (int32_t d = 0; d < c.head_dim; ++d) {
        const double q = query[d], k = row[kv + d];
        score += q * k;
        squares += q * q * k * k;
        lengths += q * q + k * k;
        value = std::max(value, std::abs(double{row[kv + c.kv_heads * c.head_dim + d]}));
      }
      const double rotated = kSigmas * kRotationRoundings * kMostRotated *
                             static_cast<double>(c.magnitude) * std::sqrt(lengths);
      score_error =
          std::max(score_error, ErrorOfProducts(squares, c.head_dim) +
                                    (c.dtype == KvDType::kF32 ? rotated : 0) + 4 * std::abs(score));
    }
    score_error += 6 * static_cast<double>(c.softcap) / static_cast<double>(kScoreScale);
    const double of_mean = 2 * static_cast<double>(rows.size()) + 10;
    errors.push_back(static_cast<float>((2 * kScoreScale * score_error + of_mean) * value));
  }
  return errors;
}

TEST_P(AttentionTest, IsTheReferences) {
  const auto f32 = KvDType::kF32, bf16 = KvDType::kBF16, f16 = KvDType::kF16, int8 = KvDType::kInt8;
  const AttentionCase cases[] = {
      {1, 1, 2, 1, f32},
      {4, 4, 16, 16, f32},
      {2, 1, 10, 5, f32},
      {6, 2, 64, 32, f32},
      {8, 2, 24, 16, f32},
      {5, 1, 128, 7, f32},
      {7, 1, 80, 48, f32},
      {1, 1, 2, 1, bf16},
      {2, 1, 10, 5, bf16},
      {6, 2, 64, 32, bf16},
      {5, 1, 128, 7, bf16},
      {7, 1, 80, 48, bf16},
      {1, 1, 2, 1, f16},
      {6, 2, 64, 32, f16},
      {7, 1, 80, 48, f16},
      {1, 1, 2, 1, int8},
      {2, 1, 10, 5, int8},
      {6, 2, 64, 32, int8},
      {5, 1, 128, 7, int8},
      {7, 1, 80, 48, int8},
      {4, 2, 16, 16, f32, 1},
      {4, 2, 24, 5, f32, 20},
      {5, 1, 64, 32, f32, 17},
      {5, 1, 80, 48, f32, 33},
      {6, 2, 64, 7, int8, 19},
      {5, 1, 64, 32, f32, 0, 48},
      {4, 2, 24, 5, f32, 20, 10, 1.25f},
      {7, 1, 80, 48, f32, 0, 0, 1, 3},
      {4, 2, 256, 16, f32, 9, 192, 1.1f, 0.5f},
      {5, 1, 128, 7, int8, 0, 0, 1, 2},
  };
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.heads, "/", c.kv_heads, " heads of ", c.head_dim, ", pages of ",
                              c.page_size, ", dtype ", static_cast<int>(c.dtype), ", window ",
                              c.window, ", rotated ", c.rotated, ", magnitude ", c.magnitude,
                              ", soft cap ", c.softcap));
    TestProgram p;
    const int64_t qkv_cols = int64_t{c.heads + 2 * c.kv_heads} * c.head_dim;
    const BufferId qkv = p.AddBuffer(qkv_cols);
    const BufferId out = p.AddBuffer(int64_t{c.heads} * c.head_dim);
    std::vector<float> frequencies;
    const int32_t rotated_dim = c.rotated == 0 ? c.head_dim : c.rotated;
    for (int i = 0; i < rotated_dim / 2; ++i) {
      // Where keys are rounded again as they are kept, both back ends must keep the same ones: a
      // rotation by 0 is exact.
      frequencies.push_back(c.dtype == f32 ? std::pow(10000.0f, -2.0f * i / c.head_dim) : 0);
    }
    p.kv_spec = {.layers = 2,
                 .kv_heads = c.kv_heads,
                 .head_dim = c.head_dim,
                 .page_size = c.page_size,
                 .pages = 200,
                 .dtype = c.dtype};
    p.Add(RopeAppendKvOp{qkv, c.heads, c.kv_heads, c.head_dim, p.AddVector(frequencies), 1,
                         c.magnitude});
    p.Add(AttentionOp{qkv, c.heads, c.kv_heads, c.head_dim, kScoreScale, 1, out, c.window,
                      c.softcap});

    // Two prefills have 37 and 3 tokens; then the first decodes beside a chunk of the second; then
    // both decode.
    const auto pages = [&](int first, int64_t tokens) {
      std::vector<int32_t> ids((tokens + c.page_size - 1) / c.page_size);
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = first + 3 * static_cast<int32_t>(i);
      return ids;
    };
    const auto zeros = [](int64_t n) { return std::vector<int32_t>(n, 0); };
    const auto left = pages(0, 39), right = pages(1, 10);
    const Batch first = BatchOf({{left, 0, zeros(37)}, {right, 0, zeros(3)}});
    const Batch second = BatchOf({{right, 3, zeros(6)}, {left, 37, zeros(1)}});
    const Batch third = BatchOf({{right, 9, zeros(1)}, {left, 38, zeros(1)}});
    std::vector<float> rotated[2], attended[2], errors;
    SequenceRows sequences[2];
    for (int i = 0; i < 2; ++i) {
      p.Bind(i == 0 ? *reference_ : *backend_);
      for (const Batch* batch : {&first, &second, &third}) {
        p.Set(qkv, RandomFloats(8, batch->rows() * qkv_cols, 2));
        SKEIN_ASSERT_OK(p.Run(*batch));
        const std::vector<float> values = p.Get(qkv, batch->rows());
        rotated[i].insert(rotated[i].end(), values.begin(), values.end());
        for (float value : p.Get(out, batch->rows())) attended[i].push_back(value);
        for (int64_t row = 0; i == 0 && row < batch->rows(); ++row) {
          // In the first batch the left one comes first.
          const bool is_left = (row < batch->sequences[0].rows) == (batch == &first);
          SequenceRows& sequence = sequences[is_left ? 0 : 1];
          sequence.emplace_back(&values[row * qkv_cols], &values[row * qkv_cols] + qkv_cols);
          for (float error : AttentionErrors(c, sequence)) {
            errors.insert(errors.end(), c.head_dim, error);
          }
        }
      }
    }
    EXPECT_TRUE(Close(rotated[1], rotated[0],
                      std::vector<float>(rotated[0].size(), kMostRotated * c.magnitude),
                      kRotationRoundings));
    EXPECT_TRUE(Close(attended[1], attended[0], errors, 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, AttentionTest, testing::ValuesIn(CpuBackends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::kernels

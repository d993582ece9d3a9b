// TopLogits against a sort on the host.
#include "kernels/cuda/top_logits.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/dtype.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_testing.h"

namespace skein::kernels::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kFirstId = 1000;

struct Answer {
  std::vector<TopLogit> top;  // [rows, capacity]
  std::vector<float> sums;
};

Answer Select(const std::vector<float>& logits, int64_t rows, int64_t stride, int64_t tokens,
              const std::vector<int32_t>& counts, int32_t capacity) {
  OwnStream stream;
  const DeviceArray<float> device_logits(logits);
  const DeviceArray<int32_t> device_counts(counts);
  const DeviceBytes top(rows * capacity * static_cast<int64_t>(sizeof(TopLogit)));
  const DeviceBytes sums(rows * 4);
  Require(Enqueue(TopLogits{.rows = rows,
                            .tokens = tokens,
                            .logits = device_logits.get(),
                            .logits_stride = stride,
                            .first_id = kFirstId,
                            .counts = device_counts.get(),
                            .capacity = capacity,
                            .top = static_cast<TopLogit*>(top.data()),
                            .sums = static_cast<float*>(sums.data())},
                  stream));
  Require(stream.Finish());
  Answer answer = {std::vector<TopLogit>(static_cast<size_t>(rows * capacity)),
                   std::vector<float>(static_cast<size_t>(rows))};
  top.Download(answer.top.data(), top.bytes());
  sums.Download(answer.sums.data(), sums.bytes());
  return answer;
}

// A row's tokens in order, those of -infinity left out.
std::vector<int32_t> Order(const float* row, int64_t tokens) {
  std::vector<int32_t> order;
  for (int32_t t = 0; t < tokens; ++t) {
    if (row[t] > -kInfinity) order.push_back(t);
  }
  std::stable_sort(order.begin(), order.end(),
                   [row](int32_t a, int32_t b) { return row[a] > row[b]; });
  return order;
}

void ExpectRow(const float* row, int64_t tokens, const TopLogit* top, int32_t count, float sum) {
  const std::vector<int32_t> order = Order(row, tokens);
  for (int32_t i = 0; i < count; ++i) {
    const bool there = i < static_cast<int32_t>(order.size());
    ASSERT_EQ(top[i].id, there ? kFirstId + order[i] : -1) << i;
    ASSERT_EQ(top[i].logit, there ? row[order[i]] : -kInfinity) << i;
  }
  double expected = 0;
  for (int32_t t : order) expected += std::exp(double{row[t]} - row[order[0]]);
  // A thread adds up every 1024th load of 4, the block 10 levels; e^x is within 2 units.
  const double roundings = static_cast<double>(tokens) / 1024 + 16;
  EXPECT_NEAR(sum, expected, expected * roundings * 0x1p-24);
}

void ExpectSelection(const std::vector<float>& logits, int64_t rows, int64_t stride, int64_t tokens,
                     const std::vector<int32_t>& counts, int32_t capacity) {
  const Answer answer = Select(logits, rows, stride, tokens, counts, capacity);
  for (int64_t r = 0; r < rows; ++r) {
    SCOPED_TRACE(testing::Message() << "row " << r << " of " << tokens);
    const TopLogit* top = answer.top.data() + r * capacity;
    ExpectRow(logits.data() + r * stride, tokens, top, counts[r], answer.sums[r]);
    // What is behind is as it was: all bits set.
    if (counts[r] < capacity) EXPECT_EQ(top[counts[r]].id, -1);
    if (counts[r] < capacity) EXPECT_TRUE(std::isnan(top[counts[r]].logit));
  }
}

TEST(TopLogitsTest, AgreesWithASort) {
  SKEIN_NEED_GPU();
  const std::vector<int32_t> counts = {1, 0, 5, 40, 1024, 1000, 1, 333};
  for (const int64_t tokens : {1, 3, 100, 1023, 4096, 4097, 32003, 128256}) {
    const int64_t stride = (tokens + 3) / 4 * 4 + 4;
    ExpectSelection(RandomValues(1, 8 * stride, DType::kF32, 10), 8, stride, tokens, counts, 1024);
    // Few values: ties everywhere.
    ExpectSelection(RandomValues(2, 8 * stride, DType::kBF16, 3), 8, stride, tokens, counts, 1024);
  }
}

TEST(TopLogitsTest, WhereVeryManyAreAlike) {
  SKEIN_NEED_GPU();
  const int64_t tokens = 50000;
  const std::vector<int32_t> counts = {1024, 7};
  ExpectSelection(std::vector<float>(2 * tokens, 1.5f), 2, tokens, tokens, counts, 1024);
  // Zeros of both signs are equal.
  std::vector<float> zeros(2 * tokens, 0.0f);
  for (size_t i = 0; i < zeros.size(); i += 3) zeros[i] = -0.0f;
  ExpectSelection(zeros, 2, tokens, tokens, counts, 1024);
  // All that is large stands in fewer groups than tokens are wanted, and is more than can be
  // sorted.
  std::vector<float> lumped = RandomValues(3, 2 * tokens, DType::kF32, 1);
  for (int64_t i = 0; i < 2 * tokens; ++i) {
    if (i % tokens % 4096 < 1000) lumped[i] += 100.0f;
  }
  ExpectSelection(lumped, 2, tokens, tokens, counts, 1024);
}

TEST(TopLogitsTest, MaskedTokensAreNone) {
  SKEIN_NEED_GPU();
  const int64_t tokens = 128256;
  std::vector<float> logits(3 * tokens, -kInfinity);
  for (int64_t t : {5, 6, 70000, 128255}) logits[t] = static_cast<float>(t % 7);
  for (int64_t t = 0; t < tokens; t += 2) logits[2 * tokens + t] = -1e30f;
  ExpectSelection({logits.begin(), logits.begin() + tokens}, 1, tokens, tokens, {10}, 16);
  const Answer answer = Select(logits, 3, tokens, tokens, {10, 10, 1024}, 1024);
  EXPECT_EQ(answer.sums[1], 0.0f);
  EXPECT_EQ(answer.top[1024].id, -1);
  EXPECT_EQ(answer.top[1024].logit, -kInfinity);
  ExpectRow(logits.data() + 2 * tokens, tokens, answer.top.data() + 2048, 1024, answer.sums[2]);
}

TEST(TopLogitsTest, TellsOfNaNAndInfinity) {
  SKEIN_NEED_GPU();
  std::vector<float> logits = RandomValues(1, 3 * 1000, DType::kF32, 4);
  logits[999] = std::nanf("");
  logits[1000] = kInfinity;
  const Answer answer = Select(logits, 3, 1000, 1000, {3, 3, 3}, 4);
  EXPECT_TRUE(std::isnan(answer.sums[0]));
  EXPECT_TRUE(std::isnan(answer.sums[1]));
  ExpectRow(logits.data() + 2000, 1000, answer.top.data() + 8, 3, answer.sums[2]);
}

TEST(TopLogitsTest, RefusesWhatDoesNotFit) {
  EXPECT_THAT(Enqueue(TopLogits{.rows = 1, .tokens = 8, .capacity = 1025}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("to 1024")));
  const auto* odd = reinterpret_cast<const float*>(uintptr_t{24});
  EXPECT_THAT(Enqueue(TopLogits{.rows = 1, .tokens = 8, .logits = odd, .capacity = 8}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("16-byte")));
}

}  // namespace
}  // namespace skein::kernels::cuda

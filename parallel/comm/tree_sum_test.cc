#include "parallel/comm/tree_sum.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace skein::comm {
namespace {

// Nine values whose sum tells in which order they were added.
const float kValues[] = {1e8f, 1.0f, -1e8f, 3.0f, 0.1f, 7e7f, -5.0f, 2e-3f, -7e7f};

float Sum(int inputs) {
  std::vector<const float*> pointers;
  for (int i = 0; i < inputs; ++i) pointers.push_back(&kValues[i]);
  float out = 0;
  TreeSum(pointers, 1, &out);
  return out;
}

TEST(TreeSum, JoinsAsWritten) {
  const float* v = kValues;
  EXPECT_EQ(Sum(1), v[0]);
  EXPECT_EQ(Sum(2), v[0] + v[1]);
  EXPECT_EQ(Sum(3), (v[0] + v[1]) + v[2]);
  EXPECT_EQ(Sum(4), (v[0] + v[1]) + (v[2] + v[3]));
  EXPECT_EQ(Sum(5), ((v[0] + v[1]) + (v[2] + v[3])) + v[4]);
  EXPECT_EQ(Sum(6), ((v[0] + v[1]) + (v[2] + v[3])) + (v[4] + v[5]));
  EXPECT_EQ(Sum(7), ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + v[6]));
  EXPECT_EQ(Sum(8), ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7])));
  EXPECT_EQ(Sum(9), (((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]))) + v[8]);
}

TEST(TreeSum, EveryElementIsSummedAlikeWhateverTheCount) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> inputs(5, std::vector<float>(1500));
  for (auto& input : inputs) {
    for (float& value : input) value = normal(random);
  }
  for (int64_t count : {0, 1, 255, 256, 257, 1500}) {
    std::vector<const float*> pointers;
    for (auto& input : inputs) pointers.push_back(input.data());
    std::vector<float> out(count + 1, NAN);
    TreeSum(pointers, count, out.data());
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(out[i],
                ((inputs[0][i] + inputs[1][i]) + (inputs[2][i] + inputs[3][i])) + inputs[4][i]);
    }
    EXPECT_TRUE(std::isnan(out[count]));
  }
}

TEST(TreeSum, WritesOverAnInput) {
  std::vector<float> a(700, 1), b(700, 2), c(700, 4);
  TreeSum({a.data(), b.data(), c.data()}, 700, b.data());
  EXPECT_EQ(b, std::vector<float>(700, 7));
}

}  // namespace
}  // namespace skein::comm

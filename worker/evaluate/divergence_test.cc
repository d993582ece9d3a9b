#include "worker/evaluate/divergence.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::worker {
namespace {

// Logits of probabilities, times any factor.
std::vector<float> LogitsOf(const std::vector<double>& probabilities, double shift = 0) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + shift));
  return logits;
}

TEST(DivergenceTest, LikelihoodsByHand) {
  const std::vector<float> logits = LogitsOf({0.5, 0.25, 0.125, 0.125});
  EXPECT_NEAR(NegativeLogLikelihood(logits, 0), std::log(2.0), 1e-6);
  EXPECT_NEAR(NegativeLogLikelihood(logits, 3), std::log(8.0), 1e-6);
  // Softmax does not know the size of logits, however large.
  EXPECT_NEAR(NegativeLogLikelihood(LogitsOf({0.5, 0.25, 0.125, 0.125}, 10000), 1), std::log(4.0),
              1e-3);
  EXPECT_NEAR(NegativeLogLikelihood({-1e30f, 0.0f}, 1), 0, 1e-9);
}

TEST(DivergenceTest, DivergencesByHand) {
  const std::vector<float> p = LogitsOf({0.5, 0.25, 0.25});
  const std::vector<float> q = LogitsOf({0.25, 0.5, 0.25}, 3);
  EXPECT_NEAR(KlDivergence(p, q), 0.5 * std::log(2.0) - 0.25 * std::log(2.0), 1e-6);
  // It is not the same the other way round.
  const std::vector<float> r = LogitsOf({0.9, 0.05, 0.05});
  EXPECT_NEAR(KlDivergence(p, r), 0.5 * std::log(0.5 / 0.9) + 0.5 * std::log(0.25 / 0.05), 1e-6);
  EXPECT_NEAR(KlDivergence(r, p), 0.9 * std::log(0.9 / 0.5) + 0.1 * std::log(0.05 / 0.25), 1e-6);
  EXPECT_NEAR(KlDivergence(p, LogitsOf({0.5, 0.25, 0.25}, -50)), 0, 1e-6);
  // Of what the reference never says, nothing counts.
  const float never = -std::numeric_limits<float>::infinity();
  EXPECT_NEAR(KlDivergence({0.0f, never}, {0.0f, 0.0f}), std::log(2.0), 1e-6);
  EXPECT_NEAR(KlDivergence({0.0f, never}, {0.0f, never}), 0, 1e-6);
}

TEST(DivergenceTest, TheLikeliest) {
  EXPECT_TRUE(SameTop({1, 3, 2}, {0, 9, -4}));
  EXPECT_FALSE(SameTop({1, 3, 2}, {9, 0, -4}));
  EXPECT_TRUE(SameTop({3, 3, 2}, {9, 0, -4}));  // the first of equal ones
}

TEST(SamplesTest, ByHand) {
  Samples samples;
  EXPECT_EQ(samples.count(), 0);
  EXPECT_EQ(samples.Mean(), 0);
  for (const double value : {4.0, 1.0, 3.0, 2.0}) samples.Add(value);
  EXPECT_EQ(samples.count(), 4);
  EXPECT_DOUBLE_EQ(samples.Mean(), 2.5);
  // The deviation is sqrt(5 / 3), of four.
  EXPECT_NEAR(samples.MeanError(), std::sqrt(5.0 / 3 / 4), 1e-12);
  EXPECT_EQ(samples.Quantile(0.5), 2);
  EXPECT_EQ(samples.Quantile(0.51), 3);
  EXPECT_EQ(samples.Quantile(1), 4);
  EXPECT_EQ(samples.Quantile(0.01), 1);
}

}  // namespace
}  // namespace skein::worker

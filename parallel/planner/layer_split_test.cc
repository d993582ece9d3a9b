#include "parallel/planner/layer_split.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "gtest/gtest.h"

namespace skein::plan {
namespace {

absl::Duration Us(double us) { return absl::Microseconds(us); }

std::vector<int64_t> Sizes(const std::vector<Range>& split) {
  std::vector<int64_t> sizes;
  for (const Range& range : split) sizes.push_back(range.size());
  return sizes;
}

absl::Duration Slowest(const std::vector<StageSpeed>& stages, const std::vector<int64_t>& layers) {
  absl::Duration slowest;
  for (size_t i = 0; i < stages.size(); ++i) {
    slowest = std::max(slowest, stages[i].layer * layers[i] + stages[i].beside);
  }
  return slowest;
}

// By looking at every split; InfiniteDuration where none fits.
absl::Duration BestByForce(int64_t layers, const std::vector<StageSpeed>& stages) {
  absl::Duration best = absl::InfiniteDuration();
  std::vector<int64_t> counts;
  const std::function<void(int64_t)> go = [&](int64_t left) {
    if (counts.size() == stages.size()) {
      if (left == 0) best = std::min(best, Slowest(stages, counts));
      return;
    }
    for (int64_t n = 1; n <= std::min(left, stages[counts.size()].max_layers); ++n) {
      counts.push_back(n);
      go(left - n);
      counts.pop_back();
    }
  };
  go(layers);
  return best;
}

TEST(LayerSplitTest, NoSplitIsBetter) {
  uint32_t state = 1;
  const auto draw = [&state](uint32_t below) {
    state = state * 1664525 + 1013904223;
    return (state >> 16) % below;
  };
  int fitting = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<StageSpeed> stages(1 + draw(4));
    for (StageSpeed& stage : stages) {
      stage = {Us(1 + draw(9)), Us(draw(2) * draw(30)), 1 + draw(8)};
    }
    const int64_t layers = 1 + draw(14);
    const std::vector<Range> split = SplitLayers(layers, stages);
    const absl::Duration best = BestByForce(layers, stages);
    EXPECT_EQ(split.empty(), best == absl::InfiniteDuration());
    if (split.empty()) continue;
    ++fitting;
    EXPECT_EQ(Slowest(stages, Sizes(split)), best);
    EXPECT_EQ(split.front().begin, 0);
    EXPECT_EQ(split.back().end, layers);
    for (size_t i = 1; i < split.size(); ++i) EXPECT_EQ(split[i].begin, split[i - 1].end);
  }
  EXPECT_GT(fitting, 100);
}

TEST(LayerSplitTest, UnlikeCardsGetTheirShare) {
  const StageSpeed fast = {Us(1), {}, 100}, slow = {Us(3), {}, 100};
  EXPECT_EQ(Sizes(SplitLayers(32, std::vector{fast, slow})), (std::vector<int64_t>{24, 8}));
  const StageSpeed small = {Us(1), {}, 5};
  EXPECT_EQ(Sizes(SplitLayers(32, std::vector{small, slow})), (std::vector<int64_t>{5, 27}));
}

TEST(LayerSplitTest, WhatALastStageDoesBesideCounts) {
  const StageSpeed stage = {Us(1), {}, 100}, last = {Us(1), Us(4), 100};
  EXPECT_EQ(Sizes(SplitLayers(32, std::vector{stage, stage, stage, last})),
            (std::vector<int64_t>{9, 9, 9, 5}));
}

TEST(LayerSplitTest, NothingFits) {
  const StageSpeed stage = {Us(1), {}, 3};
  EXPECT_TRUE(SplitLayers(7, std::vector{stage, stage}).empty());
  EXPECT_TRUE(SplitLayers(1, std::vector{stage, stage}).empty());
  EXPECT_TRUE(SplitLayers(2, std::vector{stage, StageSpeed{Us(1), {}, 0}}).empty());
}

}  // namespace
}  // namespace skein::plan

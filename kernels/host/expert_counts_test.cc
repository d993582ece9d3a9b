#include "kernels/host/expert_counts.h"

#include <vector>

#include "base/test_util.h"
#include "gtest/gtest.h"

namespace skein::kernels {
namespace {

// Of layers 4 and 7: 2 of 4 experts, and 1 of 2.
Program TwoLayers() {
  Program program;
  for (const int64_t cols : {4, 4, 2, 2}) program.buffers.push_back({.cols = cols});
  program.ops = {RouteOp{0, 2, true, 1}, ScaleOp{1, 1.0f}, RouteOp{2, 1, true, 3}};
  program.op_layers = {4, 4, 7};
  return program;
}

TEST(ExpertCountsTest, TheBusiestOfAllLayersIsTold) {
  ExpertCounts counts(TwoLayers());
  EXPECT_EQ(counts.Load(), std::nullopt);
  // Expert 3 is in both rows, where each has one on the average.
  counts.Add(0, std::vector<float>{0, 3, 0.5f, 0.5f, 1, 3, 0.5f, 0.5f}.data(), 2);
  EXPECT_EQ(counts.Load(), (ExpertLoad{.rows = 2, .layer = 4, .expert = 3, .of_average = 2}));
  counts.Add(2, std::vector<float>{1, 1, 1, 1}.data(), 2);
  EXPECT_EQ(counts.Load(), (ExpertLoad{.rows = 2, .layer = 4, .expert = 3, .of_average = 2}));
  // In layer 4 it becomes even; of layer 7 the second expert has all.
  counts.Add(0, std::vector<float>{0, 1, 0.5f, 0.5f, 1, 2, 0.5f, 0.5f}.data(), 2);
  counts.Add(0, std::vector<float>{0, 2, 0.5f, 0.5f}.data(), 1);
  EXPECT_EQ(counts.Load(), (ExpertLoad{.rows = 2, .layer = 7, .expert = 1, .of_average = 2}));
}

TEST(ExpertCountsTest, WithoutExpertsThereIsNone) {
  EXPECT_EQ(ExpertCounts(Program()).Load(), std::nullopt);
}

}  // namespace
}  // namespace skein::kernels

#include "worker/probe/gpu_overheads.h"

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "topology/rates.h"
#include "worker/probe/shape_times.h"

namespace skein::worker {
namespace {

// Steps of 1 and 64 rows: what they cost as such, each layer, and all of the layers' work.
ShapeTimes Times(int64_t layers, double work) {
  ShapeTimes times;
  times.steps.shape.layers = layers;
  const auto count = static_cast<double>(layers);
  times.points = {{.rows = 1, .seconds = 30e-6 + count * 10e-6 + work},
                  {.rows = 64, .seconds = 50e-6 + count * 25e-6 + 2 * work}};
  return times;
}

TEST(GpuOverheadsTest, DepthsTellTheStepAndWidthsTheLayer) {
  const std::vector<topology::Overhead> overheads =
      GpuOverheads(Times(2, 200e-6), Times(4, 400e-6), Times(8, 200e-6));
  ASSERT_EQ(overheads.size(), 2);
  EXPECT_EQ(overheads[0].rows, 1);
  EXPECT_NEAR(absl::ToDoubleMicroseconds(overheads[0].step), 30, 0.01);
  EXPECT_NEAR(absl::ToDoubleMicroseconds(overheads[0].layer), 10, 0.01);
  EXPECT_EQ(overheads[1].rows, 64);
  EXPECT_NEAR(absl::ToDoubleMicroseconds(overheads[1].step), 50, 0.01);
  EXPECT_NEAR(absl::ToDoubleMicroseconds(overheads[1].layer), 25, 0.01);
}

TEST(GpuOverheadsTest, NoiseIsNoCostBelowNone) {
  const std::vector<topology::Overhead> overheads =
      GpuOverheads(Times(2, 200e-6), Times(4, 500e-6), Times(8, 100e-6));
  EXPECT_EQ(overheads[0].step, absl::ZeroDuration());
  EXPECT_EQ(overheads[0].layer, absl::ZeroDuration());
}

}  // namespace
}  // namespace skein::worker

#include "kernels/packing/kv_codec.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace skein::kernels {
namespace {

TEST(Int8ScaleTest, Table) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  struct Case {
    std::vector<float> row;
    float scale;
  };
  const Case cases[] = {
      {{}, 0},
      {{0, -0.0f}, 0},
      {{127}, 1},
      {{1, -254, 3}, 2},
      {{-1, 0.5f}, 1.0f / 127},
      {{std::numeric_limits<float>::max()}, std::numeric_limits<float>::max() / 127},
      {{kSmallest}, 0},
      {{190 * kSmallest}, kSmallest},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Int8Scale(c.row.data(), static_cast<int64_t>(c.row.size())), c.scale);
  }
  for (const std::vector<float>& row :
       {std::vector<float>{1, kInf}, {-kInf, 2}, {NAN}, {-NAN, 3}, {3, NAN, kInf}}) {
    const float scale = Int8Scale(row.data(), static_cast<int64_t>(row.size()));
    EXPECT_TRUE(std::isnan(scale));
    for (float x : row) EXPECT_EQ(ToInt8(x, scale), 0);
  }
}

TEST(ToInt8Test, RoundsToNearestEven) {
  for (float scale : {1.0f, 0.25f, 0.1f, 3e30f, 1e-37f}) {
    for (float steps = -127; steps <= 127; steps += 0.125f) {
      const float x = steps * scale;
      ASSERT_EQ(ToInt8(x, scale), std::nearbyint(x / scale)) << x << " / " << scale;
    }
  }
  EXPECT_EQ(ToInt8(5, 0), 0);
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(ToInt8(190 * kSmallest, kSmallest), 127);
  EXPECT_EQ(ToInt8(-190 * kSmallest, kSmallest), -127);
}

}  // namespace
}  // namespace skein::kernels

#include "kernels/cuda/device_places.h"

#include <cstdint>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/batch_upload.h"
#include "kernels/cuda/kv_layout.h"

namespace skein::kernels::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(GraphRowsTest, GoUpToWhatABatchCanHave) {
  EXPECT_THAT(GraphRows({.rows = 256, .outputs = 20, .slots = 20}),
              ElementsAre(1, 2, 4, 8, 16, 20));
  EXPECT_THAT(GraphRows({.rows = 5, .outputs = 100, .slots = 100}), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(GraphRows({.rows = 9, .outputs = 9, .slots = 1}), ElementsAre(1));
  EXPECT_THAT(GraphRows({.rows = 9, .outputs = 0, .slots = 9}), IsEmpty());
  const std::vector<int32_t> many = GraphRows({.rows = 4096, .outputs = 4096, .slots = 4096});
  EXPECT_EQ(many.back(), 512);
  for (size_t i = 5; i < many.size(); ++i) EXPECT_LE(many[i], many[i - 1] * 3 / 2);
}

TEST(PageBytesTest, AreTheLayouts) {
  for (const KvDType dtype : {KvDType::kBF16, KvDType::kInt8}) {
    for (const int32_t head_dim : {64, 96, 128}) {
      for (const int32_t page_size : {16, 64}) {
        const KvLayer layer = {nullptr, 3, head_dim, page_size, dtype == KvDType::kInt8};
        EXPECT_EQ(
            PageBytes(
                {.kv_heads = 3, .head_dim = head_dim, .page_size = page_size, .dtype = dtype}),
            layer.PageBytes());
      }
    }
  }
}

TEST(CheckLimitsTest, RefusesWhatCannotBeNumbered) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  SKEIN_EXPECT_OK(CheckLimits({.slots = 8191, .slot_pages = 262000}));
  EXPECT_THAT(
      CheckLimits({.slots = 8192, .slot_pages = 1}),
      StatusIs(kInvalid, HasSubstr("8192 sequences of 1 pages each: GPUs have at most 8191")));
  SKEIN_EXPECT_OK(CheckLimits({.slots = 4, .slot_pages = (int64_t{1} << 29) - 1}));
  EXPECT_THAT(CheckLimits({.slots = 4, .slot_pages = int64_t{1} << 29}),
              StatusIs(kInvalid, HasSubstr("2147483647 pages for all")));
  // What they take is counted all the same.
  EXPECT_GT(BatchUpload::MaxBytes({.slots = 4096, .slot_pages = 1 << 20}), int64_t{8} << 32);
}

}  // namespace
}  // namespace skein::kernels::cuda

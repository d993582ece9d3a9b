#include "worker/device.h"

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::worker {
namespace {

using ::testing::HasSubstr;

TEST(ShareOfGpusTest, EachRankHasAGpuOrSharesOne) {
  const struct {
    bool oversubscribe;
    int local_rank, local_size, gpus;
    int gpu, sharers;  // -1: refused
  } cases[] = {
      {false, 0, 1, 1, 0, 1},   {false, 1, 2, 4, 1, 1},   {false, 3, 4, 4, 3, 1},
      {false, 1, 2, 1, -1, -1}, {false, 4, 8, 4, -1, -1}, {false, 0, 1, 0, -1, -1},
      {true, 1, 2, 1, 0, 2},    {true, 7, 8, 4, 3, 2},    {true, 4, 5, 4, 0, 2},
      {true, 0, 2, 4, 0, 1},    {true, 0, 1, 0, -1, -1},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message()
                 << "rank " << c.local_rank << " of " << c.local_size << ", " << c.gpus << " GPUs");
    const absl::StatusOr<GpuShare> share = ShareOfGpus(
        {.oversubscribe = c.oversubscribe, .local_rank = c.local_rank, .local_size = c.local_size},
        c.gpus);
    if (c.gpu < 0) {
      EXPECT_THAT(share.status(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                           HasSubstr("--oversubscribe-devices")));
      continue;
    }
    SKEIN_ASSERT_OK(share.status());
    EXPECT_EQ(share->gpu, c.gpu);
    EXPECT_EQ(share->sharers, c.sharers);
  }
}

}  // namespace
}  // namespace skein::worker

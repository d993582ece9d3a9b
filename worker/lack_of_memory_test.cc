#include "worker/lack_of_memory.h"

#include "base/test_util.h"
#include "gtest/gtest.h"

namespace skein::worker {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(ExplainLackTest, NamesWhoHasWhatWasPlannedFor) {
  const absl::Status lack = absl::ResourceExhaustedError("no 8.00 GiB for weights");
  const topology::GpuState now = {
      .free_bytes = 3 * kGiB,
      .total_bytes = 140 * kGiB,
      .processes = {{.pid = 4711, .name = "train", .bytes = 130 * kGiB}}};
  EXPECT_THAT(ExplainLack(lack, 120 * kGiB, now),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "no 8.00 GiB for weights; as this rank reported, 120.00 GiB of its GPU were "
                       "free for it, and now 3.00 GiB of 140.00 GiB are free; train (pid 4711) has "
                       "130.00 GiB"));
  EXPECT_THAT(ExplainLack(lack, 120 * kGiB, absl::UnimplementedError("there is no NVML")),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "no 8.00 GiB for weights; as this rank reported, 120.00 GiB of its GPU were "
                       "free for it, and now nobody tells who has them: there is no NVML"));
  EXPECT_THAT(ExplainLack(absl::InternalError("another"), 0, now),
              StatusIs(absl::StatusCode::kInternal, "another"));
  SKEIN_EXPECT_OK(ExplainLack(absl::OkStatus(), 0, now));
}

}  // namespace
}  // namespace skein::worker

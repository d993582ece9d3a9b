// Jobs that measure a host's cores and jobs that serve on them, at the same time.
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"
#include "tests/mpi/mpi_test_main.h"
#include "worker/probe/device_lock.h"
#include "worker/probe/job_topology.h"

namespace skein::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class SharedCoresTest : public testing::Test {
 protected:
  SharedCoresTest() {
    options_.cores_folder = testing::TempDir() + "/cores";
    options_.patience = absl::Milliseconds(20);
    std::filesystem::create_directories(options_.cores_folder);
    before_ = spdlog::default_logger();
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "", std::make_shared<spdlog::sinks::ostream_sink_st>(log_)));
  }
  ~SharedCoresTest() override { spdlog::set_default_logger(before_); }

  DeviceLock Lock() const {
    absl::StatusOr<DeviceLock> lock = DeviceLock::Open(options_.cores_folder);
    EXPECT_TRUE(lock.ok()) << lock.status();
    return *std::move(lock);
  }
  JobTopology Find() {
    absl::StatusOr<JobTopology> found = FindJobTopology(comm::TestRuntime(), options_);
    EXPECT_TRUE(found.ok()) << found.status();
    return *std::move(found);
  }
  // Of a host's ranks the first one locks its cores.
  bool locks() const { return comm::TestRuntime().local_rank() == 0; }

  JobTopologyOptions options_;
  std::ostringstream log_;
  std::shared_ptr<spdlog::logger> before_;
};

TEST_F(SharedCoresTest, WhoServesBesideMeasurementsIsWarned) {
  options_.probing = Probing::kNever;
  DeviceLock other = Lock();
  if (locks()) ASSERT_TRUE(other.TryOwn());
  Find();
  if (locks()) EXPECT_THAT(log_.str(), HasSubstr("another job has measured these cores for 20ms"));
}

TEST_F(SharedCoresTest, WhoServesAloneIsNot) {
  options_.probing = Probing::kNever;
  const JobTopology found = Find();
  EXPECT_THAT(log_.str(), IsEmpty());
  // And then nobody can measure.
  if (locks()) EXPECT_FALSE(Lock().TryOwn());
}

TEST_F(SharedCoresTest, NobodyMeasuresBesideWhoServes) {
  options_.probing = Probing::kAlways;
  DeviceLock other = Lock();
  if (locks()) ASSERT_TRUE(other.Share(absl::Seconds(1)));
  const JobTopology found = Find();
  EXPECT_FALSE(found.measured);
  EXPECT_THAT(found.why_not, HasSubstr("another job serves on these cores"));
  EXPECT_THAT(found.says, HasSubstr("assumed: "));
  EXPECT_THAT(log_.str(), Not(HasSubstr("another job has measured")));
}

TEST_F(SharedCoresTest, NobodyMeasuresWhereOneRankIsNotTo) {
  const bool never = comm::TestRuntime().rank() == 1;
  options_.probing = never ? Probing::kNever : Probing::kWhenNew;
  const JobTopology found = Find();
  EXPECT_FALSE(found.measured);
  EXPECT_EQ(found.says, never ? "assumed: nothing is measured"
                              : "assumed: nothing is measured where rank 1 is not to");
}

}  // namespace
}  // namespace skein::worker

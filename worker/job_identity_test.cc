#include "worker/job_identity.h"

#include <set>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/inprocess/inprocess.h"

namespace skein::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const char* const kSecret = "0123456789abcdef";

std::vector<absl::StatusOr<JobIdentity>> AgreeOnThree(
    std::vector<std::optional<JobIdentity>> given) {
  std::vector<absl::StatusOr<JobIdentity>> agreed(3, absl::UnknownError(""));
  comm::OnRanks(3, [&](comm::Communicator& world) {
    agreed[world.rank()] = AgreeOnJob(world, given[world.rank()]);
  });
  return agreed;
}

TEST(CheckSameProgramTest, AllRanksAreToldWhoDiffersAndHow) {
  const auto check = [](std::vector<std::string> flags,
                        std::vector<std::string> versions = {"1", "1", "1"}) {
    std::vector<absl::Status> told(3, absl::UnknownError(""));
    comm::OnRanks(3, [&](comm::Communicator& world) {
      told[world.rank()] = CheckSameProgram(world, versions[world.rank()], flags[world.rank()]);
    });
    return told;
  };
  for (const absl::Status& alike : check({"--a=1", "--a=1", "--a=1"})) SKEIN_EXPECT_OK(alike);
  for (const absl::Status& told : check({"--a=1", "--a=1", "--a=2"})) {
    EXPECT_THAT(told, StatusIs(absl::StatusCode::kFailedPrecondition,
                               "rank 0 has Skein 1 with --a=1 and rank 2 has Skein 1 with --a=2: "
                               "start all ranks of a job with the same"));
  }
  for (const absl::Status& told : check({"--a=1", "--a=1", "--a=1"}, {"1", "2", "1"})) {
    EXPECT_THAT(told, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("and rank 1 has Skein 2 with --a=1")));
  }
}

TEST(JobIdentityTest, RanksShareARandomOne) {
  std::set<std::string> ids, secrets;
  for (int job = 0; job < 2; ++job) {
    const auto agreed = AgreeOnThree({{}, {}, {}});
    for (const auto& identity : agreed) {
      SKEIN_ASSERT_OK(identity.status());
      EXPECT_EQ(identity->id.size(), 16u);
      EXPECT_EQ(identity->secret.size(), 64u);
      ids.insert(identity->id);
      secrets.insert(identity->secret);
    }
  }
  EXPECT_EQ(ids.size(), 2u);
  EXPECT_EQ(secrets.size(), 2u);
}

TEST(JobIdentityTest, RanksTakeTheOneThatRankZeroWasGiven) {
  const auto agreed = AgreeOnThree(
      {JobIdentity{"mine", kSecret}, std::nullopt, JobIdentity{"other", "fedcba9876543210"}});
  for (const auto& identity : agreed) {
    SKEIN_ASSERT_OK(identity.status());
    EXPECT_EQ(identity->id, "mine");
    EXPECT_EQ(identity->secret, kSecret);
  }
}

TEST(JobIdentityTest, TheEnvironmentHasBothOrNeither) {
  EXPECT_FALSE(ParseJobIdentity(nullptr, nullptr).value().has_value());
  const auto both = ParseJobIdentity("j", kSecret);
  SKEIN_ASSERT_OK(both.status());
  EXPECT_EQ((*both)->id, "j");
  EXPECT_EQ((*both)->secret, kSecret);
  EXPECT_THAT(ParseJobIdentity("j", nullptr).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("SKEIN_JOB_ID is set without SKEIN_JOB_SECRET")));
  EXPECT_THAT(ParseJobIdentity(nullptr, kSecret).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("SKEIN_JOB_SECRET is set without SKEIN_JOB_ID")));
}

TEST(JobIdentityTest, TheEnvironmentIsRefusedByLengthAndNeverQuotesASecret) {
  EXPECT_THAT(ParseJobIdentity("", kSecret).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("SKEIN_JOB_ID has 0 bytes")));
  EXPECT_THAT(
      ParseJobIdentity(std::string(257, 'x').c_str(), kSecret).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("SKEIN_JOB_ID has 257 bytes")));
  EXPECT_THAT(
      ParseJobIdentity("j", "hidden").status(),
      StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("SKEIN_JOB_SECRET has 6 bytes"),
                                                         ::testing::Not(HasSubstr("hidden")))));
  EXPECT_FALSE(ParseJobIdentity("j", std::string(257, 'x').c_str()).ok());
}

}  // namespace
}  // namespace skein::worker

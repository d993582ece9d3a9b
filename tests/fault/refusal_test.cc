// Tests that jobs which cannot serve are refused, and told why: layouts, models, weights.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/running_answer.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;

TEST(RefusalTest, LayoutsThatCannotBeAreRefusedBeforeLoading) {
  struct Case {
    std::string layout;
    std::string kv_memory;
    int ranks;
    std::vector<std::string> says;
  };
  const Case cases[] = {
      {"tp=5,pp=1",
       "0.5",
       5,
       {"layout tp=5,pp=1 does not work for bard on 5 ranks:",
        "tp=5: 4 heads cannot be split into 5 shards\n",
        "Nearest that work: tp=1,pp=1,dp=5; tp=1,pp=5,dp=1\n"}},
      {"tp=1,pp=9",
       "0.5",
       9,
       {"layout tp=1,pp=9 does not work for bard on 9 ranks:",
        "pp=9: 9 stages of 8 layers cannot be, since a stage holds at least one\n",
        "Nearest that work: tp=1,pp=3,dp=3; tp=1,pp=1,dp=9\n"}},
      {"tp=1,pp=1",
       "6MiB",
       2,
       {"tp=1,pp=1,dp=2: KV caches of 6.0 MiB per rank have 48 pages of 16 tokens; 1 sequence of "
        "1024 tokens needs 64, 8.0 MiB per rank\n",
        "Nearest that work: tp=", "tp=2,pp=1,dp=1", "tp=1,pp=2,dp=1"}},
      {"tp=2,pp=1",
       "100TiB",
       2,
       {absl::StrCat("tp=2,pp=1,dp=1: node ", HostName(), " would need 200.00 TiB for "),
        ", 100.00 TiB per rank and has ", "No other layout of these ranks works either\n"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.layout);
    Cluster cluster({.layout = c.layout, .coordinator_flags = {"--kv-memory=" + c.kv_memory}});
    Process& job = cluster.StartJob(c.ranks);
    const std::optional<int> status = job.Wait(absl::Seconds(30));
    ASSERT_TRUE(status.has_value());
    EXPECT_NE(*status, 0);
    for (const std::string& text : c.says) EXPECT_THAT(job.Output(), HasSubstr(text));
    EXPECT_THAT(job.Output(), ::testing::Not(HasSubstr("loaded")));
  }
}

TEST(RefusalTest, RanksOfUnlikeFlagsAreNamedBeforeTheyAttach) {
  Cluster cluster({.layout = "tp=2"});
  Process& job = cluster.StartJob(1, {":", "-np", "1", "worker/worker", "--device-comm=host",
                                      "--decode=graph", "--coordinator=" + cluster.address()});
  const std::optional<int> status = job.Wait(absl::Seconds(30));
  ASSERT_TRUE(status.has_value());
  EXPECT_NE(*status, 0);
  // Between them the version of the program.
  EXPECT_THAT(
      job.Output(),
      ::testing::AllOf(
          HasSubstr("with --device-comm=auto --decode=auto --profile=0 and rank 1 has "),
          HasSubstr("with --device-comm=host --decode=graph --profile=0: start all ranks")));
  EXPECT_EQ(cluster.Status().jobs_size(), 0);
}

TEST(RefusalTest, AMissingOrDifferentModelNamesNodeAndPath) {
  Cluster cluster({.layout = "tp=1,pp=1"});
  const std::string root = cluster.scratch() + "/models";
  std::filesystem::create_directories(root);
  Process& missing = cluster.StartJob(1, {"--model-root=" + root});
  ASSERT_TRUE(missing.Wait(absl::Seconds(20)).has_value());
  EXPECT_THAT(missing.Output(), HasSubstr(root + "/bard"));
  EXPECT_THAT(missing.Output(), HasSubstr("rank 0 on " + HostName()));

  std::filesystem::copy("checkpoints/bard", root + "/bard",
                        std::filesystem::copy_options::recursive);
  std::filesystem::permissions(root + "/bard/config.json", std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  FILE* config = std::fopen((root + "/bard/config.json").c_str(), "a");
  ASSERT_NE(config, nullptr);
  std::fputs("\n", config);
  std::fclose(config);
  Process& different = cluster.StartJob(1, {"--model-root=" + root});
  ASSERT_TRUE(different.Wait(absl::Seconds(20)).has_value());
  EXPECT_THAT(different.Output(), HasSubstr(root + "/bard"));
  EXPECT_THAT(different.Output(), HasSubstr("another one"));
  EXPECT_TRUE(cluster.coordinator().WaitForOutput(root + "/bard", absl::Seconds(5)));
}

// Bard's weights below `root`, which a job reads instead of the coordinator's.
std::string CopyBard(const std::string& root) {
  const std::string folder = root + "/bard";
  std::filesystem::create_directories(root);
  std::filesystem::copy("checkpoints/bard", folder, std::filesystem::copy_options::recursive);
  return folder;
}

// Inverts a bit of a file's last byte, which is a weight's.
void FlipLastByte(const std::string& path) {
  std::filesystem::permissions(path, std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char last = static_cast<char>(file.get());
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(last ^ 1));
  ASSERT_TRUE(file.good());
}

// One byte differs, of a file of the same size and header.
TEST(RefusalTest, OtherWeightsThanAServingReplicasAreRefusedByTheNamesOfBothCopies) {
  Cluster cluster({.layout = "tp=1,pp=1"});
  const std::string first = cluster.scratch() + "/first";
  const std::string second = cluster.scratch() + "/second";
  const std::string theirs = CopyBard(first);
  const std::string ours = CopyBard(second);
  Process& serving = cluster.StartJob(1, {"--model-root=" + first});
  ASSERT_TRUE(cluster.WaitForServing(1));
  // The copies are equal still.
  Process& alike = cluster.StartJob(1, {"--model-root=" + second});
  ASSERT_TRUE(cluster.WaitForServing(2)) << alike.Output();

  FlipLastByte(ours + "/model.safetensors");
  Process& refused = cluster.StartJob(1, {"--model-root=" + second});
  const std::optional<int> status = refused.Wait(absl::Seconds(30));
  ASSERT_TRUE(status.has_value()) << "it serves";
  EXPECT_NE(*status, 0);
  const std::string says = absl::StrCat("the copies ", HostName(), ":", ours, " and ", HostName(),
                                        ":", theirs, " differ");
  EXPECT_THAT(refused.Output(), HasSubstr(says));
  EXPECT_TRUE(cluster.coordinator().WaitForOutput(says, absl::Seconds(5)));
  EXPECT_FALSE(serving.Wait(absl::ZeroDuration()).has_value());
  EXPECT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", 5)).status.ok());
}

}  // namespace
}  // namespace skein::testing

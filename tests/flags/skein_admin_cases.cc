// What the flags of `skein model` and `skein drain` do.
#include <future>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/ask.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/held.h"
#include "tests/flags/run.h"
#include "tests/flags/skein_cases.h"

namespace skein::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// A job that does not move has a request, which neither of the two waits for; by default they
// would, for 30 s.
void Timeout(const std::string& command, const std::string& says) {
  Cluster cluster({.coordinator_flags = {"--heartbeat-timeout=60s", "--replica-wait=100ms"}});
  cluster.StartJob(1);
  ASSERT_TRUE(cluster.WaitForServing(1));
  const std::string job = cluster.ServingJob(0).job_id();
  StoppedRank rank(cluster);
  std::future<Answer> answer = AskInBackground(cluster, GreedyRequest("ROMEO:", 2));
  ASSERT_TRUE(WaitForRequests(cluster, 1, 0));
  const absl::Time begin = absl::Now();
  const Outcome outcome =
      Run(kSkein, absl::StrCat(command == "drain" ? "drain " + job : "model remove bard",
                               " --timeout=1ms --coordinator=", cluster.address()));
  EXPECT_TRUE(outcome.ok()) << outcome.err;
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
  EXPECT_THAT(answer.get().error, HasSubstr(says));
  rank.Continue();
}

void ListJson(SharedCluster& shared) {
  const std::string line = absl::StrCat("model list --coordinator=", shared.address());
  EXPECT_THAT(Run(kSkein, line).out, HasSubstr("bard: "));
  const Outcome outcome = Run(kSkein, line + " --json");
  ASSERT_TRUE(json::accept(outcome.out)) << outcome.out << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["models"][0]["state"], "serving");
}

}  // namespace

FlagCases AdminCases(SharedCluster& shared) {
  return {HelpCase(kSkein, "model"),
          HelpCase(kSkein, "model add"),
          HelpCase(kSkein, "model remove"),
          {{"model remove", "--timeout"},
           [] { Timeout("model remove", "'bard' is removed, and its drain timeout passed"); }},
          HelpCase(kSkein, "model list"),
          {{"model list", "--json"}, [&] { ListJson(shared); }},
          HelpCase(kSkein, "drain"),
          {{"drain", "--timeout"}, [] { Timeout("drain", "drained, and its timeout passed"); }}};
}

}  // namespace skein::testing

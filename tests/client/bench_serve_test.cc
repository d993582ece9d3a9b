// skein bench serve against a coordinator in the test's process.
#include <atomic>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "coordinator/rpc/fake_job.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/skein_program.h"

namespace skein::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using coordinator::FakeJob;
using coordinator::TestCoordinator;

// A job that gives requests all their tokens at once.
class BenchServeTest : public ::testing::Test {
 protected:
  static coordinator::Daemon::Options Options() {
    coordinator::Daemon::Options options = coordinator::TestOptions();
    options.model.limits.constraints.max_num_seqs = 64;
    options.model.limits.max_queue = 1000;
    return options;
  }

  void SetUp() override { ASSERT_TRUE(coordinator_.WaitUntilServing()); }

  Outcome BenchServe(const std::string& arguments) {
    return Skein(
        absl::StrCat("bench serve --coordinator ", coordinator_.address(), " ", arguments));
  }

  std::vector<serving::AnswerOutput> Answer(const serving::Request& request) {
    if (++requests_ > answers_) return {};
    using Finish = serving::Finish;
    if (fails_) {
      return {{.request_id = request.id, .finish = Finish::kFailed, .error = "no finite logit"}};
    }
    return {coordinator::TextOutput(request.id, std::string(request.max_tokens, 'x'),
                                    Finish::kMaxTokens)};
  }

  std::atomic<int> requests_ = 0;
  std::atomic<int> answers_ = std::numeric_limits<int>::max();  // and then no more
  std::atomic<bool> fails_ = false;
  TestCoordinator coordinator_{Options()};
  FakeJob job_{{.coordinator = coordinator_.address(),
                .script = [this](const serving::Request& request) { return Answer(request); }}};
};

// In either way of sending.
class BenchServeLoadTest : public BenchServeTest,
                           public ::testing::WithParamInterface<const char*> {
 protected:
  Outcome Load(const std::string& arguments) {
    return BenchServe(absl::StrCat(GetParam(), " ", arguments));
  }
  static std::string HowSent() { return *GetParam() != '\0' ? "in separate calls" : "in one call"; }
};

INSTANTIATE_TEST_SUITE_P(Ways, BenchServeLoadTest, ::testing::Values("", "--separate-calls"),
                         [](const auto& info) {
                           return *info.param != '\0' ? "SeparateCalls" : "OneCall";
                         });

TEST_P(BenchServeLoadTest, MeasuresManyStreams) {
  const std::string json = absl::StrCat(::testing::TempDir(), "/load.json");
  const std::string svg = absl::StrCat(::testing::TempDir(), "/load.svg");
  const Outcome outcome =
      Load(absl::StrCat("--concurrency 256 --requests 600 --warmup 10 --prompt-tokens 9 "
                        "--answer-tokens 5 --ttft-limit 1h --json ",
                        json, " --svg ", svg));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(
      outcome.out,
      AllOf(HasSubstr("fake: 256 streams " + HowSent() + ", prompts of 9 tokens"),
            HasSubstr("600 of 600 requests succeeded"), HasSubstr("600 of 600 within ttft <= 1h")));
  EXPECT_THAT(ReadFileOrEmpty(json),
              AllOf(HasSubstr("\"output_tokens\":3000"), HasSubstr("\"prompt_tokens\":5400")));
  EXPECT_THAT(ReadFileOrEmpty(svg), HasSubstr("</svg>"));
}

TEST_P(BenchServeLoadTest, TakesLengthsFromAFileAtPoissonTimes) {
  const std::string lengths = absl::StrCat(::testing::TempDir(), "/lengths.csv");
  const std::string json = absl::StrCat(::testing::TempDir(), "/lengths.json");
  std::ofstream(lengths) << "4,2\n6,3\n";
  const Outcome outcome =
      Load(absl::StrCat("--rate 200 --requests 40 --lengths ", lengths, " --json ", json));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("200 requests/s (Poisson) " + HowSent() + ", lengths of "));
  EXPECT_THAT(ReadFileOrEmpty(json),
              AllOf(HasSubstr("\"output_tokens\":100"), HasSubstr("\"prompt_tokens\":200")));
}

TEST_P(BenchServeLoadTest, SaysThatAnInterruptedRunIsIncomplete) {
  answers_ = 3;
  const std::string json = absl::StrCat(::testing::TempDir(), "/interrupted.json");
  Outcome outcome;
  std::thread skein([&] {
    outcome = Load(absl::StrCat(
        "--concurrency 2 --requests 10 --prompt-tokens 4 --answer-tokens 2 --json ", json));
  });
  // The fifth is sent when the third is done.
  EXPECT_TRUE(TestCoordinator::WaitFor([&] { return requests_ == 5; }));
  InterruptSkein();
  skein.join();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("INCOMPLETE: interrupted when 3 of 10 requests were done\n"));
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(ReadFileOrEmpty(json),
              AllOf(HasSubstr("\"complete\":false,\"requests_asked\":10,\"requests_done\":3,"),
                    HasSubstr("\"succeeded\":3,")));
}

TEST_F(BenchServeTest, SaysWhenNoReplicaServes) {
  job_.Kill(0);
  ASSERT_TRUE(coordinator_.WaitUntilServing(false));
  const Outcome idle = BenchServe("");
  EXPECT_EQ(idle.exit_code, 1);
  EXPECT_THAT(idle.err, HasSubstr("no replica serves yet"));
}

TEST_F(BenchServeTest, LengthsThatDoNotFitAreExplained) {
  const Outcome outcome = BenchServe("--prompt-tokens 30 --answer-tokens 30");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("do not fit into the context of 32"));
  EXPECT_THAT(BenchServe("--lengths /nowhere").err, HasSubstr("--lengths: cannot read '/nowhere'"));
}

// Nobody listens there, which is the error of a command line that is right.
TEST(SkeinUsageTest, BenchServeHasMoreStreamsThanACallHoldsOnlyInSeparateCalls) {
  const std::string many = "bench serve --coordinator 127.0.0.1:1 --concurrency 16385";
  const Outcome outcome = Skein(many);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--concurrency: one call holds 16384 streams, not 16385"));
  EXPECT_THAT(Skein(many + " --separate-calls").err, HasSubstr("no coordinator answers"));
}

// Nobody listens there, which would be the error of a load that begins.
TEST(SkeinUsageTest, BenchServeChecksItsFilesBeforeTheLoad) {
  EXPECT_THAT(Skein("bench serve --coordinator 127.0.0.1:1 --lengths /").err,
              HasSubstr("--lengths: cannot read '/': Is a directory"));
  for (const std::string flag : {"--json", "--svg"}) {
    for (const std::string path : {"/nowhere/file", "/tmp"}) {
      const Outcome outcome =
          Skein(absl::StrCat("bench serve --coordinator 127.0.0.1:1 ", flag, " ", path));
      EXPECT_EQ(outcome.exit_code, 1);
      EXPECT_THAT(outcome.err, HasSubstr(absl::StrCat(flag, ": cannot write '", path, "': ")));
    }
  }
}

TEST_P(BenchServeLoadTest, CountsErrorsByCode) {
  fails_ = true;
  const Outcome outcome = Load("--concurrency 1 --requests 3 --prompt-tokens 4 --answer-tokens 2");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("0 of 3 requests succeeded"), HasSubstr("  INTERNAL: 3\n")));
  EXPECT_THAT(outcome.err,
              HasSubstr("the last error was INTERNAL: the replica gave the request up"));
}

TEST_P(BenchServeLoadTest, EndsWhenTheCoordinatorDoes) {
  auto coordinator = std::make_unique<TestCoordinator>(Options());
  FakeJob job({.coordinator = coordinator->address()});  // never answers
  ASSERT_TRUE(coordinator->WaitUntilServing());
  Outcome outcome;
  std::thread skein([&] {
    outcome =
        Skein(absl::StrCat("bench serve --coordinator ", coordinator->address(), " ", GetParam(),
                           " --concurrency 2 --requests 5 --prompt-tokens 4 "
                           "--answer-tokens 2"));
  });
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(job.WaitForRequest().has_value());
  coordinator.reset();
  skein.join();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("0 of 5 requests succeeded"));
  EXPECT_THAT(outcome.err, HasSubstr("the last error was "));
}

}  // namespace
}  // namespace skein::client

// Flags of `skein bench serve`: what they change in its report, and at the coordinator.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/test_util.h"
#include "base/tls/mutual_tls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/ask.h"
#include "tests/flags/run.h"
#include "tests/flags/skein_cases.h"
#include "tests/flags/tls_files.h"

namespace skein::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

using nlohmann::json;

class BenchServe {
 public:
  explicit BenchServe(SharedCluster& shared) : shared_(shared) {}

  Outcome Of(const std::string& flags, const Environment& environment = {}) const {
    Outcome outcome =
        Run(kSkein, absl::StrCat("bench serve --coordinator=", shared_.address(), " ", flags),
            environment);
    EXPECT_TRUE(outcome.ok()) << outcome.err;
    return outcome;
  }

  // With a few short requests, unless `flags` say otherwise.
  json Report(const std::string& flags, const std::string& requests = "--requests=4") const {
    const std::string path = NewPath("report");
    Of(absl::StrCat("--json=", path, " ", requests, " ", flags));
    const std::string text = ReadFileOrEmpty(path);
    EXPECT_TRUE(json::accept(text)) << text;
    return json::parse(text, nullptr, /*allow_exceptions=*/false);
  }

  cluster::v1::ReplicaLoad Load() const { return shared_.Get().ServingJob(0).replicas(0).load(); }

  // How many requests were under way at the same time.
  static int MostAtOnce(const json& report) {
    int most = 0;
    for (const json& one : report.at("records")) {
      int at_once = 0;
      for (const json& other : report.at("records")) {
        at_once += other.at("sent") <= one.at("sent") && other.at("ended") > one.at("sent");
      }
      most = std::max(most, at_once);
    }
    return most;
  }

  static std::vector<int64_t> AnswerLengths(const json& report) {
    std::vector<int64_t> lengths;
    for (const json& record : report.at("records")) lengths.push_back(record.at("tokens").size());
    return lengths;
  }

  void Coordinator() const {
    EXPECT_EQ(Report("").at("succeeded"), 4);
    const Outcome nobody = Run(kSkein, "bench serve --coordinator=127.0.0.1:1 --requests=1");
    EXPECT_EQ(nobody.exit_code, 1);
    EXPECT_THAT(nobody.err, HasSubstr("127.0.0.1:1"));
  }

  void Concurrency() const {
    EXPECT_EQ(MostAtOnce(Report("--concurrency=1")), 1);
    EXPECT_EQ(MostAtOnce(Report("--concurrency=3")), 3);
  }

  // The closed loop has 8 at once.
  void Rate() const {
    EXPECT_EQ(MostAtOnce(Report("", "--requests=12")), 8);
    EXPECT_GT(MostAtOnce(Report("--rate=100000", "--requests=12")), 8);
  }

  // The gRPC library tells the methods that the program calls.
  void SeparateCalls() const {
    const auto calls = [this](const std::string& flags) {
      return Of("--requests=2 --answer-tokens=2 " + flags,
                {{"GRPC_VERBOSITY", "debug"}, {"GRPC_TRACE", "http"}})
          .err;
    };
    const std::string one = "/skein.v1.Inference/GenerateMany";
    EXPECT_THAT(calls(""), HasSubstr(one));
    EXPECT_THAT(calls("--separate-calls"),
                AllOf(HasSubstr("/skein.v1.Inference/Generate"), Not(HasSubstr(one))));
  }

  void Requests() const {
    EXPECT_THAT(Report("", "--requests=3").at("records"), SizeIs(3));
    EXPECT_THAT(Report("", "--requests=5").at("records"), SizeIs(5));
  }

  // The coordinator gets them, the report does not.
  void Warmup() const {
    const int64_t before = Load().prompt_tokens();
    const json report = Report("--warmup=3 --prompt-tokens=10", "--requests=2");
    EXPECT_EQ(Load().prompt_tokens() - before, (3 + 2) * 10);
    EXPECT_THAT(report.at("records"), SizeIs(2));
  }

  void Lengths() const {
    const std::string path = NewPath("lengths");
    std::ofstream(path) << "7,2\n11,5\n";
    const int64_t before = Load().prompt_tokens();
    const json report = Report("--concurrency=1 --lengths=" + path);
    EXPECT_EQ(AnswerLengths(report), (std::vector<int64_t>{2, 5, 2, 5}));
    EXPECT_EQ(Load().prompt_tokens() - before, 2 * (7 + 11));
  }

  static void Tls() {
    const TlsFiles files;
    SKEIN_ASSERT_OK_AND_ASSIGN(const MutualTls tls, LoadMutualTls(files.good(), absl::Now()));
    Cluster cluster({.coordinator_flags = TlsFlags(files.good()), .tls = tls});
    cluster.StartJob(1, TlsFlags(files.good()));
    ASSERT_TRUE(cluster.WaitForServing(1));
    const std::string bench =
        absl::StrCat("bench serve --requests=2 --coordinator=", cluster.address());
    EXPECT_TRUE(Run(kSkein, bench + files.flags()).ok());
    EXPECT_EQ(Run(kSkein, bench).exit_code, 1);
  }

  static void Model() {
    Cluster cluster(
        {.coordinator_flags = {"--model=a=checkpoints/bard", "--model=b=checkpoints/bard"}});
    cluster.StartJob(1, {"--model=a"});
    cluster.StartJob(1, {"--model=b"});
    ASSERT_TRUE(cluster.WaitForServing(2));
    const auto bench = [&](const std::string& flags) {
      return Run(kSkein, absl::StrCat("bench serve --requests=2 --prompt-tokens=10 --coordinator=",
                                      cluster.address(), " ", flags));
    };
    const auto computed = [&](const std::string& model) {
      for (int job = 0; job < 2; ++job) {
        const auto status = cluster.ServingJob(job);
        if (status.model_name() == model) return status.replicas(0).load().prompt_tokens();
      }
      return int64_t{-1};
    };
    const Outcome of_b = bench("--model=b");
    EXPECT_THAT(of_b.out, HasSubstr("b: "));
    EXPECT_EQ(computed("b"), 20);
    EXPECT_EQ(computed("a"), 0);
    EXPECT_TRUE(bench("").ok());
    EXPECT_EQ(computed("a"), 20);
    const Outcome of_none = bench("--model=c");
    EXPECT_EQ(of_none.exit_code, 1);
    EXPECT_THAT(of_none.err, HasSubstr("no 'c' is served"));
  }

  void PromptTokens() const {
    const int64_t before = Load().prompt_tokens();
    Report("--prompt-tokens=33");
    EXPECT_EQ(Load().prompt_tokens() - before, 4 * 33);
  }

  void AnswerTokens() const {
    EXPECT_THAT(AnswerLengths(Report("--answer-tokens=3")), Each(3));
    EXPECT_THAT(AnswerLengths(Report("--answer-tokens=4")), Each(4));
  }

  // Of prompts that come one after the other: what the replica knows of them by then.
  int64_t CachedTokens(const std::string& flags) const {
    const int64_t before = Load().cached_tokens();
    Report("--concurrency=1 --prompt-tokens=64 --answer-tokens=2 " + flags);
    return Load().cached_tokens() - before;
  }

  // Three pages of 16 in each prompt but the first one.
  void SharedPrefix() const {
    EXPECT_EQ(CachedTokens("--seed=101"), 0);
    EXPECT_EQ(CachedTokens("--seed=102 --shared-prefix=48"), 3 * 48);
  }

  void Seed() const {
    EXPECT_EQ(CachedTokens("--seed=201"), 0);
    EXPECT_EQ(CachedTokens("--seed=202"), 0);
    EXPECT_THAT(CachedTokens("--seed=201"), Gt(0));  // the same prompts again
  }

  void ExpectLimits(const std::string& flag, const std::string& key) const {
    const json loose = Report(absl::StrCat(flag, "=1h")).at("goodput");
    EXPECT_EQ(loose.at("requests"), 4);
    const json tight = Report(absl::StrCat(flag, "=1ns")).at("goodput");
    EXPECT_EQ(tight.at("requests"), 0);
    EXPECT_EQ(tight.at(key), 1e-9);
  }

  void Json() const { EXPECT_THAT(Report("").at("records"), SizeIs(4)); }

  void Svg() const {
    const std::string path = NewPath("svg");
    Of("--requests=2 --svg=" + path);
    EXPECT_THAT(ReadFileOrEmpty(path), StartsWith("<svg"));
  }

 private:
  SharedCluster& shared_;
};

}  // namespace

FlagCases BenchServeCases(SharedCluster& shared) {
  const BenchServe bench(shared);
  const auto named = [](const std::string& flag, std::function<void()> shows) {
    return FlagCase{{"bench serve", flag}, std::move(shows)};
  };
  const std::function<void()> tls = RunOnce(BenchServe::Tls);
  return {
      HelpCase(kSkein, "bench serve"),
      named("--coordinator", [=] { bench.Coordinator(); }),
      named("--model", BenchServe::Model),
      named("--tls-cert", tls),
      named("--tls-key", tls),
      named("--tls-ca", tls),
      named("--concurrency", [=] { bench.Concurrency(); }),
      named("--rate", [=] { bench.Rate(); }),
      named("--separate-calls", [=] { bench.SeparateCalls(); }),
      named("--requests", [=] { bench.Requests(); }),
      named("--warmup", [=] { bench.Warmup(); }),
      named("--lengths", [=] { bench.Lengths(); }),
      named("--prompt-tokens", [=] { bench.PromptTokens(); }),
      named("--answer-tokens", [=] { bench.AnswerTokens(); }),
      named("--shared-prefix", [=] { bench.SharedPrefix(); }),
      named("--seed", [=] { bench.Seed(); }),
      named("--ttft-limit", [=] { bench.ExpectLimits("--ttft-limit", "ttft_limit"); }),
      named("--tpot-limit", [=] { bench.ExpectLimits("--tpot-limit", "tpot_limit"); }),
      named("--json", [=] { bench.Json(); }),
      named("--svg", [=] { bench.Svg(); }),
  };
}

}  // namespace skein::testing

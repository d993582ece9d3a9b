// What each flag of the skein program and of its commands does.
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/ask.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/run.h"
#include "tests/flags/skein_cases.h"
#include "tests/flags/tls_files.h"

namespace skein::testing {

Cluster& SharedCluster::Get() {
  if (cluster_ == nullptr) {
    cluster_ = std::make_unique<Cluster>(Cluster::Options{});
    cluster_->StartJob(1);
    EXPECT_TRUE(cluster_->WaitForServing(1));
  }
  return *cluster_;
}

namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using nlohmann::json;

// ---- status, models ----

void Coordinator(SharedCluster& shared) {
  EXPECT_THAT(Run(kSkein, absl::StrCat("--coordinator=", shared.address(), " status")).out,
              HasSubstr("model bard: serving"));
  const Outcome nobody = Run(kSkein, "--coordinator=127.0.0.1:1 status");
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("127.0.0.1:1"));
}

// Flags, or the environment, name the files; each that is wrong is refused, by one end or the
// other.
void Tls() {
  const TlsFiles files;
  Cluster cluster({.coordinator_flags = TlsFlags(files.good())});
  const std::string status = absl::StrCat("status --coordinator=", cluster.address());
  EXPECT_THAT(Run(kSkein, status + files.flags()).out, HasSubstr("model bard"));
  EXPECT_THAT(Run(kSkein, status).err, HasSubstr("the coordinator may want TLS: --tls-cert FILE"));
  EXPECT_THAT(Run(kSkein, status + files.with_wrong_certificate()).err,
              HasSubstr("may not trust --tls-cert"));
  EXPECT_THAT(Run(kSkein, status + files.with_wrong_ca()).err, HasSubstr("not of --tls-ca"));
  EXPECT_THAT(Run(kSkein, status + files.with_wrong_key()).err,
              HasSubstr(files.stranger.key_file + ": is not the key of "));
  EXPECT_EQ(Run(kSkein, "memory --model=checkpoints/bard --tp=1" + files.flags()).exit_code, 2);
  const std::string two = absl::StrCat("env SKEIN_TLS_CERT=", files.good().certificate,
                                       " SKEIN_TLS_KEY=", files.good().key);
  const std::string all = absl::StrCat(two, " SKEIN_TLS_CA=", files.good().ca, " ", kSkein);
  EXPECT_TRUE(Run(all, status).ok());
  EXPECT_EQ(Run(absl::StrCat(two, " ", kSkein), status).exit_code, 2);
  EXPECT_THAT(Run(all, status + files.with_wrong_ca()).err, HasSubstr("not of --tls-ca"));
  EXPECT_THAT(
      Run(kSkein, "plan --model=checkpoints/bard --topology=pcie-4 --emit=mpirun" + files.flags())
          .out,
      HasSubstr(" --coordinator=127.0.0.1:50051 --tls-cert=/"));
}

void StatusWait() {
  Cluster cluster({});
  const std::string status = "status --coordinator=" + cluster.address();
  EXPECT_EQ(Run(kSkein, status).exit_code, 0);
  const Outcome waited = Run(kSkein, status + " --wait=300ms");
  EXPECT_EQ(waited.exit_code, 1);
  EXPECT_THAT(waited.err, HasSubstr("no replica serves after 300ms"));
}

// At a terminal, where half a second passes before somebody types q.
std::string Top(SharedCluster& shared, const std::string& flags) {
  return Run("sh",
             absl::StrCat("-c '(sleep 0.5; printf q; sleep 0.2) | script -qec \"", kSkein,
                          " top --coordinator=", shared.address(), " ", flags, "\" /dev/null'"))
      .out;
}
int64_t TimesShown(const std::string& output) {
  int64_t times = 0;
  for (size_t at = 0; (at = output.find("\x1b[H", at)) != std::string::npos; ++at) ++times;
  return times;
}
void TopInterval(SharedCluster& shared) {
  EXPECT_EQ(TimesShown(Top(shared, "--interval=1h")), 1);
  EXPECT_GE(TimesShown(Top(shared, "--interval=100ms")), 3);
}
void TopOnce(SharedCluster& shared) {
  EXPECT_EQ(TimesShown(Top(shared, "--once")), 0);
  EXPECT_THAT(Top(shared, "--once"), HasSubstr("bard: serving"));
}

// Whatever `command` prints is JSON with the flag, and is none without.
void PrintsJson(SharedCluster& shared, const std::string& command, const std::string& key) {
  const std::string line = absl::StrCat(command, " --coordinator=", shared.address());
  EXPECT_FALSE(json::accept(Run(kSkein, line).out));
  const Outcome outcome = Run(kSkein, line + " --json");
  ASSERT_TRUE(json::accept(outcome.out)) << outcome.out << outcome.err;
  EXPECT_TRUE(json::parse(outcome.out).contains(key)) << outcome.out;
}

// ---- plan ----

// A flag and what a plan says with it only.
struct Planned {
  const char* flag;
  const char* value;
  const char* says;
  const char* others = "--model=checkpoints/bard --ranks=2";
};
constexpr char kPipeline[] = "--model=checkpoints/bard --ranks=2 --layout=pp=2";
constexpr Planned kPlanned[] = {
    {"--ranks", "3", "for a job of 3 ranks", "--model=checkpoints/bard"},
    {"--layout", "pp=2", "plan tp=1,pp=2,dp=1"},
    {"--context-length", "512", "at once, of at most 512 tokens"},
    {"--max-num-seqs", "3", "- 3 sequences at once"},
    {"--kv-memory", "16MiB", "16.0 MiB per rank, as asked"},
    {"--kv-dtype", "bf16", "  64.0 MiB  "},
    {"--hop-dtype", "f16", "activations in f16", kPipeline},
    {"--deterministic", "true", "- deterministic: "},
    {"--exact", "true", "- exact: "},
    {"--swap-memory", "16MiB", "and 128 to swap to"},
    {"--max-num-batched-tokens", "64", "- steps of at most 64 tokens"},
};

void ChangesPlan(const Planned& c) {
  const std::string plan = absl::StrCat("plan ", c.others);
  const Outcome without = Run(kSkein, plan);
  const Outcome with = Run(kSkein, absl::StrCat(plan, " ", c.flag, "=", c.value));
  EXPECT_TRUE(without.ok()) << without.err;
  EXPECT_TRUE(with.ok()) << with.err;
  EXPECT_THAT(without.out, Not(HasSubstr(c.says)));
  EXPECT_THAT(with.out, HasSubstr(c.says));
}

// Nobody listens where a coordinator is looked for by default.
void PlanWithoutACluster() {
  for (const char* flag : {"--all", "--json", "--emit=mpirun", "--svg=p.svg", "--pareto=p.svg"}) {
    const Outcome outcome = Run(kSkein, absl::StrCat("plan --model=checkpoints/bard ", flag));
    EXPECT_EQ(outcome.exit_code, 1) << flag;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err,
                HasSubstr("layouts are ranked for a cluster, and there is none (no coordinator "));
  }
  EXPECT_THAT(Run(kSkein, "plan --model=checkpoints/bard --ranks=2 --json").err,
              HasSubstr(" excludes --"));
}

void PlanModel() {
  PlanWithoutACluster();
  const Outcome here = Run(kSkein, "plan --model=checkpoints/bard");
  EXPECT_THAT(here.out, HasSubstr(" 13.0 MiB "));
  EXPECT_THAT(here.err, HasSubstr("a plan of this host, for there is no cluster: no coordinator "));
  // A certificate that nobody asked for is no obstacle.
  const Outcome without_tls =
      Run(kSkein, "plan --model=checkpoints/bard", {{"SKEIN_TLS_CERT", "/nowhere"}});
  EXPECT_THAT(without_tls.out, HasSubstr(" 13.0 MiB "));
  EXPECT_THAT(without_tls.err, HasSubstr("SKEIN_TLS_CERT"));
  EXPECT_THAT(Run(kSkein, "plan --model=synthetic:llama3-1b").out, Not(HasSubstr(" 13.0 MiB ")));
}

void Gantt() {
  const std::string path = NewPath("gantt");
  EXPECT_TRUE(Run(kSkein, absl::StrCat("plan ", kPipeline, " --gantt=", path)).ok());
  EXPECT_THAT(ReadFileOrEmpty(path), StartsWith("<svg"));
  // Of machines that are not here: the best layout's first replica.
  const std::string line =
      "plan --model=synthetic:llama3-8b --topology=pcie-4 --layout=pp=2,tp=1 --gantt=";
  EXPECT_TRUE(Run(kSkein, line + path).ok());
  EXPECT_THAT(ReadFileOrEmpty(path), AllOf(StartsWith("<svg"), HasSubstr("tp=1,pp=2,dp=2: decode"),
                                           HasSubstr("stage 1"), Not(HasSubstr("stage 2"))));
  EXPECT_THAT(Run(kSkein, line + "/nowhere/picture").err, HasSubstr("--gantt: "));
}

FlagCases PlanCases() {
  FlagCases cases = {
      HelpCase(kSkein, "plan"), {{"plan", "--model"}, PlanModel}, {{"plan", "--gantt"}, Gantt}};
  for (const Planned& c : kPlanned) cases.push_back({{"plan", c.flag}, [&c] { ChangesPlan(c); }});
  return cases;
}

// ---- bench ----

void BenchWorker() {
  const std::string worker = NewPath("worker");
  std::ofstream(worker) << "#!/bin/sh\necho \"its arguments: $*\"\n";
  std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
  EXPECT_EQ(Run(kSkein, absl::StrCat("bench --worker=", worker, " --batch=2")).out,
            "its arguments: bench --batch=2\n");
}

FlagCases OtherCases(SharedCluster& shared) {
  const std::function<void()> tls = RunOnce(Tls);
  return {
      HelpCase(kSkein, ""),
      VersionCase(kSkein),
      {{"", "--coordinator"}, [&] { Coordinator(shared); }},
      {{"", "--tls-cert"}, tls},
      {{"", "--tls-key"}, tls},
      {{"", "--tls-ca"}, tls},
      HelpCase(kSkein, "status"),
      {{"status", "--wait"}, StatusWait},
      {{"status", "--json"}, [&] { PrintsJson(shared, "status", "jobs"); }},
      HelpCase(kSkein, "top"),
      {{"top", "--interval"}, [&] { TopInterval(shared); }},
      {{"top", "--once"}, [&] { TopOnce(shared); }},
      HelpCase(kSkein, "models"),
      {{"models", "--json"}, [&] { PrintsJson(shared, "models", "models"); }},
      {{"bench", "--worker"}, BenchWorker},
  };
}

// A coordinator in a file is for the commands that ask it; the others do not mind.
void CoordinatorInFile() {
  const std::string path = NewPath("config");
  std::ofstream(path) << "[skein]\ncoordinator = 127.0.0.1:1\n[plan]\nranks = 3\n";
  const std::string plan = absl::StrCat("plan --model=checkpoints/bard --config=", path);
  EXPECT_THAT(Run(kSkein, plan).out, HasSubstr("for a job of 3 ranks"));
  EXPECT_EQ(Run(kSkein, plan + " --coordinator=127.0.0.1:1").exit_code, 2);
  EXPECT_THAT(Run(kSkein, absl::StrCat("models --config=", path)).err, HasSubstr("127.0.0.1:1"));
}

int Main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  SharedCluster shared;
  RegisterFlagTests(
      kSkein, Concatenated({OtherCases(shared), PlanCases(), MachinesCases(), DoctorCases(),
                            FilesCases(), BenchScaleCases(), ServeCases(), GenerateCases(shared),
                            SamplingCases(shared), BenchServeCases(shared), ChatCases(shared),
                            AdminCases(shared), KeysCases(), ConfigCases(kSkein)}));
  RegisterTest("skein", "CoordinatorInFile", CoordinatorInFile);
  RegisterServeTests();
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace skein::testing

int main(int argc, char** argv) { return skein::testing::Main(argc, argv); }

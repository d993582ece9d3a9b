// What each flag of the coordinator does.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/flags/ask.h"
#include "tests/flags/coordinator_cases.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/held.h"
#include "tests/flags/log_cases.h"
#include "tests/flags/run.h"

namespace skein::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// Stopped ranks stay members of their jobs.
constexpr char kPatient[] = "--heartbeat-timeout=60s";
constexpr char kPrompt[] = "First Citizen: we are accounted poor citizens, the patricians good.";

// A coordinator, and a job of `ranks`.
class Serving : public Cluster {
 public:
  explicit Serving(const std::vector<std::string>& flags, int ranks = 1)
      : Cluster({.coordinator_flags = flags}) {
    StartJob(ranks);
    EXPECT_TRUE(WaitForServing(1));
  }
  // Of its one replica.
  cluster::v1::ReplicaLoad Load() { return ServingJob(0).replicas(0).load(); }
};

// ---- Places ----

void Model() {
  Cluster cluster({.model = MakeModel("other-bard")});
  EXPECT_EQ(cluster.Status().model_name(), "other-bard");
  // A second one, with a limit of its own.
  Cluster two({.coordinator_flags = {"--model=chat=checkpoints/bard --context-length=40"}});
  EXPECT_EQ(two.Status().model_name(), "bard, chat");
  two.StartJob(1, {"--model=chat"});
  ASSERT_TRUE(two.WaitForServing(1));
  EXPECT_EQ(two.ServingJob(0).plan().context_length(), 40);
}

// Both show in the file: it comes, and has the address.
void ListenAndPortFile() {
  const std::string port_file = NewPath("port");
  Process coordinator({.name = "coordinator",
                       .argv = {kCoordinator, "--model=checkpoints/bard", "--listen=127.0.0.2:0",
                                "--port-file=" + port_file}});
  ASSERT_TRUE(coordinator.WaitForOutput("listening on", absl::Seconds(20)));
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!std::filesystem::exists(port_file) && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  const std::string address = ReadFileOrEmpty(port_file);
  EXPECT_THAT(address, StartsWith("127.0.0.2:"));
  EXPECT_TRUE(Run(kSkein, "status --coordinator=" + address).ok());
}

void LogLevel() {
  Cluster said({});
  EXPECT_THAT(said.coordinator().Output(), HasSubstr("listening on"));
  Cluster silent({.coordinator_flags = {"--log-level=off"}});
  EXPECT_THAT(silent.coordinator().Output(), IsEmpty());
}

// On stderr, of one that was started and ended.
std::string Logged(const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {kCoordinator, "--model=checkpoints/bard", "--listen=127.0.0.1:0",
                                   "--port-file=" + NewPath("port")};
  argv.insert(argv.end(), flags.begin(), flags.end());
  Process coordinator({.name = "coordinator", .argv = argv});
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!std::filesystem::exists(argv[3].substr(argv[3].find('=') + 1)) &&
         absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  coordinator.Signal(SIGTERM);
  EXPECT_EQ(coordinator.Wait(absl::Seconds(20)), 0);
  return coordinator.Output();
}

void AccessLog() {
  for (const bool on : {true, false}) {
    Serving cluster(on ? std::vector<std::string>{} : std::vector<std::string>{"--no-access-log"});
    EXPECT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", 2)).status.ok());
    cluster.coordinator().Signal(SIGTERM);
    EXPECT_TRUE(cluster.coordinator().WaitForOutput("drained", absl::Seconds(20)));
    const auto line = ContainsRegex("access protocol=grpc .* status=OK .* answer_tokens=2 ");
    const std::string said = cluster.coordinator().Output();
    if (on) {
      EXPECT_THAT(said, line);
    } else {
      EXPECT_THAT(said, Not(HasSubstr("access protocol")));
    }
  }
  Serving again({"--no-access-log", "--access-log"});
  EXPECT_TRUE(again.Generate(GreedyRequest("ROMEO:", 2)).status.ok());
  EXPECT_TRUE(again.coordinator().WaitForOutput("access protocol", absl::Seconds(20)));
}

// ---- Plans ----

void Layout() {
  Serving cluster({"--layout=pp=2"}, 2);
  EXPECT_EQ(cluster.ServingJob(0).plan().layout().pp_size(), 2);
  EXPECT_EQ(Serving({}, 2).ServingJob(0).plan().layout().pp_size(), 1);
}

void ContextLength() {
  Serving cluster({"--context-length=40"});
  v1::GenerateRequest request = GreedyRequest("ROMEO:", 0);
  request.clear_max_tokens();
  request.mutable_sampling()->set_ignore_eos(true);
  EXPECT_EQ(cluster.Generate(request).tokens.size(), 40 - 3);  // the prompt has three
}

void MaxSequences() {
  Serving cluster({"--max-num-seqs=2"});
  v1::GenerateRequest request = GreedyRequest("ROMEO:", 1);
  request.set_n(2);
  EXPECT_TRUE(cluster.Generate(request).status.ok());
  request.set_n(3);
  EXPECT_EQ(cluster.Generate(request).status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

// A page of bard's takes 128 KiB: 16 tokens of 8 layers, 2 heads of 64 floats, keys and values.
void KvMemory() {
  Serving cluster({"--kv-memory=16MiB"});
  EXPECT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", 2)).status.ok());  // the load is the job's
  EXPECT_EQ(cluster.Load().total_pages(), 128);
}

void SwapMemory() {
  Serving cluster({"--swap-memory=16MiB"});
  EXPECT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", 2)).status.ok());
  EXPECT_EQ(cluster.Load().total_swap_pages(), 128);
}

// Other roundings are other log probabilities; the plan's own bytes are half.
void KvDType() {
  Serving wide({});
  Serving narrow({"--kv-dtype=bf16"});
  const std::string request =
      absl::StrCat("--prompt='", kPrompt, "' --temperature=0 --max-tokens=5 --logprobs=3");
  const Asked want = Ask(wide.address(), request);
  const Asked got = Ask(narrow.address(), request);
  ASSERT_EQ(want.tokens.size(), 5);
  ASSERT_EQ(got.tokens.size(), 5);
  EXPECT_NE(got.tokens, want.tokens);
  EXPECT_EQ(Ask(wide.address(), request).tokens, want.tokens);  // all else is the same
  EXPECT_THAT(wide.ServingJob(0).plan_table(), HasSubstr(" 128.0 MiB  "));
  EXPECT_THAT(narrow.ServingJob(0).plan_table(), HasSubstr(" 64.0 MiB  "));
}

// As above, in a pipeline.
void HopDType() {
  Serving wide({"--layout=pp=2"}, 2);
  Serving narrow({"--layout=pp=2", "--hop-dtype=bf16"}, 2);
  const std::string request =
      absl::StrCat("--prompt='", kPrompt, "' --temperature=0 --max-tokens=5 --logprobs=3");
  const Asked want = Ask(wide.address(), request);
  const Asked got = Ask(narrow.address(), request);
  ASSERT_EQ(want.tokens.size(), 5);
  ASSERT_EQ(got.tokens.size(), 5);
  EXPECT_NE(got.tokens, want.tokens);
  EXPECT_EQ(Ask(narrow.address(), request).tokens, got.tokens);
  EXPECT_THAT(wide.ServingJob(0).plan_table(), HasSubstr("activations in f32"));
  EXPECT_THAT(narrow.ServingJob(0).plan_table(), HasSubstr("activations in bf16"));
}

// CPUs compute so anyway: the plan that ranks are given tells it.
void Deterministic() {
  Serving plain({});
  Serving deterministic({"--deterministic"});
  EXPECT_THAT(plain.ServingJob(0).plan_table(), Not(HasSubstr("- deterministic: ")));
  EXPECT_THAT(deterministic.ServingJob(0).plan_table(), HasSubstr("- deterministic: "));
}

// That it reaches the products is quantized_model_test's and gguf_serving_test's.
void Exact() {
  Serving plain({});
  Serving exact({"--exact"});
  EXPECT_THAT(plain.ServingJob(0).plan_table(), Not(HasSubstr("- exact: ")));
  EXPECT_THAT(exact.ServingJob(0).plan_table(), HasSubstr("- exact: "));
}

void MaxNumBatchedTokens() {
  constexpr int kBatchedTokens = 16;
  Serving cluster({absl::StrCat("--max-num-batched-tokens=", kBatchedTokens)});
  const Asked asked =
      Ask(cluster.address(), absl::StrCat("--prompt='", kPrompt, kPrompt, "' --max-tokens=1"));
  const int64_t prompt = asked.prompt_tokens();
  ASSERT_GT(prompt, 2 * kBatchedTokens);
  EXPECT_EQ(cluster.Load().steps(), (prompt + kBatchedTokens - 1) / kBatchedTokens);
}

// What a plan is made for, and a flag by which it says so.
struct Goal {
  const char* flag;
  const char* value;
  const char* says;
};
constexpr Goal kGoals[] = {
    {"--prompt-tokens", "100", "at once, of 100 and 256 tokens"},
    {"--output-tokens", "100", "at once, of 512 and 100 tokens"},
    {"--concurrency", "3", "with 3 requests at once"},
    {"--objective", "latency", "Ranked by the time of an answer"},
    {"--ttft-limit", "1us", "TTFT of at most 1us, which the best does not keep"},
    {"--tpot-limit", "1us", "TPOT of at most 1us, which the best does not keep"},
};

// Lines of the table are folded.
std::string PlanOf(const std::vector<std::string>& flags) {
  return absl::StrReplaceAll(Serving(flags).ServingJob(0).plan_table(), {{"\n  ", " "}});
}

// Means, and the longest one's context.
void GoalOfLengths() {
  const std::string file = NewPath("lengths");
  std::ofstream(file) << "30,10\n10,10\n";
  Serving cluster({absl::StrCat("--lengths=", file)});
  EXPECT_THAT(absl::StrReplaceAll(cluster.ServingJob(0).plan_table(), {{"\n  ", " "}}),
              HasSubstr("at once, of 20 and 10 tokens"));
  v1::GenerateRequest request = GreedyRequest("ROMEO:", 0);
  request.clear_max_tokens();
  request.mutable_sampling()->set_ignore_eos(true);
  EXPECT_EQ(cluster.Generate(request).tokens.size(), 40 - 3);  // the prompt has three
}

void HasGoal(const Goal& goal) {
  EXPECT_THAT(PlanOf({}), Not(HasSubstr(goal.says)));
  EXPECT_THAT(PlanOf({absl::StrCat(goal.flag, "=", goal.value)}), HasSubstr(goal.says));
}

// ---- Requests ----

// A replica with one sequence takes a second request. With room for one in the queue the third
// waits, and the fourth is refused.
void MaxQueue() {
  Serving cluster({"--max-queue=1", "--max-num-seqs=1", kPatient});
  StoppedRank rank(cluster);
  const v1::GenerateRequest request = GreedyRequest("ROMEO:", 2);
  std::vector<std::future<Answer>> taken;
  for (const auto& [running, queued] : {std::pair(1, 0), std::pair(2, 0), std::pair(2, 1)}) {
    taken.push_back(AskInBackground(cluster, request));
    ASSERT_TRUE(WaitForRequests(cluster, running, queued));
  }
  const Answer refused = cluster.Generate(request, absl::Seconds(10));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  rank.Continue();
  for (std::future<Answer>& answer : taken) EXPECT_TRUE(answer.get().status.ok());
}

// The end of a request whose replica is killed before it gives a token.
Answer LostBeforeItsFirstToken(const std::string& flag) {
  Serving cluster({flag, kPatient});
  StoppedRank rank(cluster);
  std::future<Answer> answer = AskInBackground(cluster, GreedyRequest("ROMEO:", 2));
  EXPECT_TRUE(WaitForRequests(cluster, 1, 0));
  rank.Kill();
  return answer.get();
}

void MaxRetries() {
  const Answer answer = LostBeforeItsFirstToken("--max-retries=0");
  EXPECT_FALSE(answer.status.ok());
  EXPECT_THAT(answer.error, HasSubstr("the last 1 replicas gave no token (--max-retries=0)"));
}

void ReplicaWait() {
  const absl::Time begin = absl::Now();
  const Answer answer = LostBeforeItsFirstToken("--replica-wait=100ms");
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(answer.error, HasSubstr("100ms (--replica-wait)"));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(25));  // the default is 30 s
}

// Without it the silence of 20 s would end the request, in other words.
void DrainTimeout() {
  Serving cluster({"--drain-timeout=1ms", "--heartbeat-timeout=20s"});
  StoppedRank rank(cluster);
  std::future<Answer> answer = AskInBackground(cluster, GreedyRequest("ROMEO:", 2));
  ASSERT_TRUE(WaitForRequests(cluster, 1, 0));
  cluster.coordinator().Signal(SIGTERM);
  EXPECT_THAT(answer.get().error, HasSubstr("its drain timeout passed"));
}

// The default, 3 s, would name a shorter silence.
void HeartbeatTimeout() {
  Serving cluster({"--heartbeat-timeout=5s"});
  StoppedRank rank(cluster);
  EXPECT_TRUE(cluster.coordinator().WaitForOutput("has been silent for", absl::Seconds(30)));
  EXPECT_THAT(cluster.coordinator().Output(),
              ContainsRegex("has been silent for ([5-9]|[1-9][0-9])[0-9]{3} ms"));
}

FlagCases CoordinatorCases() {
  FlagCases cases = {
      HelpCase(kCoordinator, ""),
      VersionCase(kCoordinator),
      {{"", "--model"}, Model},
      {{"", "--listen"}, ListenAndPortFile},
      {{"", "--port-file"}, ListenAndPortFile},
      {{"", "--log-level"}, LogLevel},
      {{"", "--access-log"}, AccessLog},
      {{"", "--no-access-log"}, AccessLog},
      {{"", "--layout"}, Layout},
      {{"", "--context-length"}, ContextLength},
      {{"", "--max-num-seqs"}, MaxSequences},
      {{"", "--kv-memory"}, KvMemory},
      {{"", "--kv-dtype"}, KvDType},
      {{"", "--hop-dtype"}, HopDType},
      {{"", "--deterministic"}, Deterministic},
      {{"", "--exact"}, Exact},
      {{"", "--swap-memory"}, SwapMemory},
      {{"", "--max-num-batched-tokens"}, MaxNumBatchedTokens},
      {{"", "--max-queue"}, MaxQueue},
      {{"", "--max-retries"}, MaxRetries},
      {{"", "--replica-wait"}, ReplicaWait},
      {{"", "--drain-timeout"}, DrainTimeout},
      {{"", "--heartbeat-timeout"}, HeartbeatTimeout},
  };
  cases.push_back({{"", "--lengths"}, GoalOfLengths});
  for (const Goal& goal : kGoals) cases.push_back({{"", goal.flag}, [&goal] { HasGoal(goal); }});
  return cases;
}

int Main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  RegisterFlagTests(kCoordinator, Concatenated({CoordinatorCases(), DoorCases(), JournalCases(),
                                                LogCases(Logged), ConfigCases(kCoordinator)}));
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace skein::testing

int main(int argc, char** argv) { return skein::testing::Main(argc, argv); }

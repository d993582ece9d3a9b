// Every layout of four ranks that have a GPU each: bard's answers, and answers that outlive a
// killed rank. Skipped where there are fewer GPUs.
#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/test_device.h"
#include "tests/engine/tie_gap.h"
#include "tests/gpu/gpu_job.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kGpus = 4;
constexpr int kPrompts = 20;

class FourGpusTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> gpus, kernels::ListCudaDevices());
    if (gpus.size() < kGpus) GTEST_SKIP() << "no four GPUs, but " << gpus.size();
  }
};

std::vector<std::string> Flags(std::vector<std::string> more) {
  more.insert(more.end(), {"--max-num-seqs=16", "--kv-memory=1GiB", "--kv-dtype=bf16"});
  return more;
}

// A job whose ranks have the GPUs from `first` on.
Process& StartOnGpus(Cluster& cluster, int ranks, int first, std::vector<std::string> flags = {},
                     std::vector<std::string> launch = {}) {
  for (const std::string& argument : WithGpus(first, ranks)) launch.push_back(argument);
  flags.emplace_back("--device=cuda");
  return cluster.StartJob(ranks, flags, "", launch);
}

// Of all lengths, also longer than a micro-batch.
std::vector<v1::GenerateRequest> Requests() {
  std::vector<v1::GenerateRequest> requests(kPrompts);
  for (int i = 0; i < kPrompts; ++i) {
    const int length = i < 4 ? 1 + i : 5 + i * i;
    for (int t = 0; t < length; ++t) {
      requests[i].mutable_prompt_tokens()->add_ids((t * 131 + i * 29 + 7) % 1000);
    }
    requests[i].set_max_tokens(48);
    requests[i].mutable_sampling()->set_temperature(0);
    requests[i].mutable_sampling()->set_ignore_eos(true);
  }
  return requests;
}

struct Step {
  uint32_t token = 0;
  std::map<uint32_t, float> logprobs;  // of the most likely ones
};

// A greedy answer with what else was likely at each token.
std::vector<Step> GenerateSteps(Cluster& cluster, v1::GenerateRequest request) {
  request.mutable_sampling()->set_logprobs(20);
  grpc::ClientContext context;
  const auto stream = cluster.inference().Generate(&context, request);
  std::vector<Step> steps;
  v1::GenerateEvent event;
  while (stream->Read(&event)) {
    for (const v1::Token& token : event.tokens().tokens()) {
      Step& step = steps.emplace_back();
      step.token = token.id();
      for (const v1::TopLogprob& top : token.top_logprobs())
        step.logprobs[top.id()] = top.logprob();
    }
  }
  const grpc::Status status = stream->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return steps;
}

std::vector<std::vector<Step>> AnswersOfOneCpu() {
  Cluster cluster({.layout = "tp=1", .coordinator_flags = Flags({})});
  cluster.StartJob(1, {"--device=cpu"});
  EXPECT_TRUE(cluster.WaitForServing(1)) << cluster.coordinator().Output();
  std::vector<std::vector<Step>> answers;
  for (const v1::GenerateRequest& request : Requests()) {
    answers.push_back(GenerateSteps(cluster, request));
  }
  return answers;
}

struct Layout {
  std::string layout;
  std::string decode = "auto";
};

class LayoutTest : public FourGpusTest, public ::testing::WithParamInterface<Layout> {};

// Where an answer leaves the CPU's, the two tokens were as likely as roundings can tell.
TEST_P(LayoutTest, GreedyAnswersAreTheCpus) {
  static const std::vector<std::vector<Step>> want = AnswersOfOneCpu();
  Cluster cluster({.layout = GetParam().layout, .coordinator_flags = Flags({})});
  Process& job = StartOnGpus(cluster, kGpus, 0, {"--decode=" + GetParam().decode});
  ASSERT_TRUE(cluster.WaitForServing(1)) << job.Output();
  if (GetParam().decode == "persistent") {
    EXPECT_THAT(job.Output(), HasSubstr("are decoded by one kernel a step"));
  }
  const std::vector<v1::GenerateRequest> requests = Requests();
  const std::vector<Answer> got = cluster.GenerateAll(requests);
  int ties = 0, same = 0;
  for (int i = 0; i < kPrompts; ++i) {
    SCOPED_TRACE(absl::StrCat("prompt ", i));
    ASSERT_TRUE(got[i].status.ok()) << got[i].status.error_message();
    const std::vector<uint32_t>& tokens = got[i].tokens;
    ASSERT_EQ(want[i].size(), 48u);
    ASSERT_EQ(tokens.size(), want[i].size());
    size_t at = 0;
    while (at < tokens.size() && tokens[at] == want[i][at].token) ++at;
    same += static_cast<int>(at);
    if (at == tokens.size()) continue;
    ++ties;
    const Step& step = want[i][at];
    ASSERT_TRUE(step.logprobs.contains(tokens[at])) << "not among the 20 most likely ones";
    const float gap = step.logprobs.at(step.token) - step.logprobs.at(tokens[at]);
    std::printf("prompt %d leaves the CPU's answer after %zu tokens, by a gap of %.3f\n", i, at,
                static_cast<double>(gap));
    EXPECT_LT(gap, worker::kTieGap);
  }
  EXPECT_LE(ties, kPrompts / 2);
  EXPECT_GE(same, kPrompts * 48 / 2);
}

INSTANTIATE_TEST_SUITE_P(OfFour, LayoutTest,
                         ::testing::Values(Layout{"tp=4", "graph"}, Layout{"tp=4", "persistent"},
                                           Layout{"pp=4"}, Layout{"tp=2,pp=2"}, Layout{"dp=4"},
                                           Layout{"tp=2,dp=2"}, Layout{"pp=2,dp=2"}),
                         [](const auto& info) {
                           std::string name = info.param.layout + "_" + info.param.decode;
                           std::replace(name.begin(), name.end(), ',', '_');
                           std::erase(name, '=');
                           return name;
                         });

// Greedy, drawn, and by what history changes.
std::vector<v1::GenerateRequest> MixedRequests(uint32_t max_tokens) {
  std::vector<v1::GenerateRequest> requests = Requests();
  for (int i = 0; i < kPrompts; ++i) {
    v1::Sampling& sampling = *requests[i].mutable_sampling();
    requests[i].set_max_tokens(max_tokens);
    if (i % 3 == 0) continue;
    sampling.set_temperature(0.8f);
    sampling.set_seed(i);
    if (i % 3 == 2) sampling.set_repetition_penalty(1.2f);
  }
  return requests;
}

std::vector<std::vector<uint32_t>> TokensOf(const std::vector<Answer>& answers) {
  std::vector<std::vector<uint32_t>> tokens;
  for (const Answer& answer : answers) {
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    tokens.push_back(answer.tokens);
  }
  return tokens;
}

TEST_F(FourGpusTest, DeterministicAnswersAreThoseOfOneGpu) {
  const std::vector<v1::GenerateRequest> requests = MixedRequests(64);
  const auto answers = [&](const std::string& layout, int ranks) {
    SCOPED_TRACE(layout);
    Cluster cluster({.layout = layout, .coordinator_flags = Flags({"--deterministic"})});
    Process& job = StartOnGpus(cluster, ranks, 0);
    EXPECT_TRUE(cluster.WaitForServing(1)) << job.Output();
    return TokensOf(cluster.GenerateAll(requests));
  };
  const std::vector<std::vector<uint32_t>> want = answers("tp=1", 1);
  for (const std::vector<uint32_t>& tokens : want) EXPECT_EQ(tokens.size(), 64u);
  for (const char* layout : {"tp=4", "pp=4", "tp=2,pp=2", "tp=2,dp=2"}) {
    EXPECT_EQ(answers(layout, kGpus), want) << layout;
  }
}

struct Kill {
  std::string name;
  std::string layout;
  std::vector<int> jobs;  // ranks of each
  bool persistent = false;
};

class KillTest : public FourGpusTest, public ::testing::WithParamInterface<Kill> {};

// Bits depend on nothing: all steps are graphs of equal bits, or all are one kernel's, which are
// small enough for it.
TEST_P(KillTest, AnswersGoOnWithTheSameTokens) {
  const Kill& kill_case = GetParam();
  const std::vector<std::string> flags =
      kill_case.persistent ? Flags({"--max-num-batched-tokens=16"})
                           : Flags({"--max-num-batched-tokens=64", "--deterministic"});
  Cluster cluster({.layout = kill_case.layout, .coordinator_flags = flags});
  const std::vector<std::string> worker = {kill_case.persistent ? "--decode=persistent"
                                                                : "--decode=auto"};
  // Slow enough that no answer has ended when the rank is killed.
  const std::vector<std::string> slow = FaultyDriver("slow:" + cluster.scratch() + "/never");
  std::vector<Process*> jobs;
  for (const int ranks : kill_case.jobs) {
    const int first = static_cast<int>(jobs.size()) * ranks;
    jobs.push_back(&StartOnGpus(cluster, ranks, first, worker, slow));
    ASSERT_TRUE(cluster.WaitForServing(static_cast<int>(jobs.size()))) << jobs.back()->Output();
  }
  std::vector<v1::GenerateRequest> requests = MixedRequests(120);
  requests.resize(8);
  const std::vector<std::vector<uint32_t>> want = TokensOf(cluster.GenerateAll(requests));

  std::future<std::vector<Answer>> running =
      std::async(std::launch::async, [&] { return cluster.GenerateAll(requests); });
  ASSERT_TRUE(cluster.WaitForStatus(
      [&](const auto& status) {
        return status.running_requests() == static_cast<int>(requests.size());
      },
      absl::Seconds(30)));
  absl::SleepFor(absl::Milliseconds(100));
  const cluster::v1::JobStatus lost = cluster.ServingJob(0);
  const absl::Time begin = absl::Now();
  const int victim = lost.ranks_size() - 1;
  ASSERT_EQ(kill(lost.ranks(victim).pid(), SIGKILL), 0);
  EXPECT_TRUE(cluster.coordinator().WaitForOutput(WhoIsLost(lost, victim), kNamed))
      << cluster.coordinator().Output();
  std::printf("named after %s\n", absl::FormatDuration(absl::Now() - begin).c_str());
  ExpectEnds(*jobs.front(), lost);
  Process& next = StartOnGpus(cluster, kill_case.jobs.front(), 0, worker);
  ASSERT_TRUE(cluster.WaitForServing(static_cast<int>(jobs.size()))) << next.Output();
  EXPECT_EQ(TokensOf(running.get()), want);
  EXPECT_GE(cluster.Status().migrations(), 1);
}

INSTANTIATE_TEST_SUITE_P(OfFour, KillTest,
                         ::testing::Values(Kill{"tp4", "tp=4", {4}},
                                           Kill{"tp4_persistent", "tp=4", {4}, true},
                                           Kill{"pp4", "pp=4", {4}},
                                           Kill{"tp2_pp2", "tp=2,pp=2", {4}},
                                           Kill{"two_jobs_of_tp2", "tp=2,pp=1", {2, 2}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::testing

// Answers whose job is killed in their middle go on elsewhere, as if nothing had happened: real
// processes, real signals.
#include <signal.h>

#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"

namespace skein::testing {
namespace {

// Greedy, and by everything whose state another replica must take over: random draws, penalties
// (the history), mirostat with DRY, which takes two answers.
std::vector<v1::GenerateRequest> Requests(uint32_t max_tokens) {
  std::vector<v1::GenerateRequest> requests;
  for (const char* prompt : {"ROMEO:", "First Citizen:\n", "é – ü"}) {
    v1::GenerateRequest greedy = GreedyRequest(prompt, max_tokens);
    v1::GenerateRequest sampled = greedy;
    sampled.mutable_sampling()->set_temperature(0.8f);
    sampled.mutable_sampling()->set_repetition_penalty(1.1f);
    sampled.mutable_sampling()->set_seed(100 + requests.size());
    v1::GenerateRequest mirostat = sampled;
    mirostat.mutable_sampling()->set_mirostat_tau(3);
    mirostat.mutable_sampling()->set_dry_multiplier(0.8f);
    mirostat.set_n(2);
    requests.insert(requests.end(), {greedy, sampled, mirostat});
  }
  return requests;
}

int64_t TokensThatCame(const cluster::v1::ClusterStatus& status) {
  int64_t tokens = 0;
  for (const auto& job : status.jobs()) {
    for (const auto& replica : job.replicas()) tokens += replica.tokens_total();
  }
  return tokens;
}

int ServingJobs(const cluster::v1::ClusterStatus& status) {
  int count = 0;
  for (const auto& job : status.jobs()) count += job.state() == "serving";
  return count;
}

// Requests that are answered while the test does something else.
class RunningAnswers {
 public:
  // Returns when all of them are in the middle of their answers.
  RunningAnswers(Cluster& cluster, const std::vector<v1::GenerateRequest>& requests) {
    const auto count = static_cast<int32_t>(requests.size());
    const int64_t before = TokensThatCame(cluster.Status());
    for (const v1::GenerateRequest& request : requests) {
      answers_.push_back(std::async(std::launch::async,
                                    [&cluster, request] { return cluster.Generate(request); }));
    }
    EXPECT_TRUE(cluster.WaitForStatus(
        [&](const auto& status) {
          return status.running_requests() == count &&
                 TokensThatCame(status) >= before + 10 * count;
        },
        absl::Seconds(30)));
  }

  void ExpectEqual(const std::vector<Answer>& want) {
    for (size_t i = 0; i < answers_.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("request ", i));
      const Answer got = answers_[i].get();
      EXPECT_TRUE(got.status.ok()) << got.status.error_message();
      for (const auto& [index, answer] : want[i].by_answer) {
        SCOPED_TRACE(absl::StrCat("answer ", index));
        ASSERT_TRUE(got.by_answer.contains(index));
        EXPECT_EQ(got.by_answer.at(index).tokens, answer.tokens);
        EXPECT_EQ(got.by_answer.at(index).text, answer.text);
        EXPECT_EQ(got.by_answer.at(index).reason, answer.reason);
      }
    }
  }

 private:
  std::vector<std::future<Answer>> answers_;
};

// Of an undisturbed run.
std::vector<Answer> AnswersOf(Cluster& cluster, const std::vector<v1::GenerateRequest>& requests) {
  std::vector<Answer> answers = cluster.GenerateAll(requests);
  for (const Answer& answer : answers) {
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_FALSE(answer.tokens.empty());
    EXPECT_EQ(answer.by_answer.size(), answer.n);
  }
  return answers;
}

void KillRank(const cluster::v1::JobStatus& job, int rank) {
  ASSERT_EQ(kill(job.ranks(rank).pid(), SIGKILL), 0);
}

TEST(RecoveryTest, AnswersGoOnWithTheOtherJobHoweverOftenOneIsKilled) {
  const std::vector<v1::GenerateRequest> requests = Requests(700);
  Cluster cluster({.layout = "tp=2,pp=1", .worker = "tests/fault/faulty_worker"});
  // Slow enough that no answer has ended when the first rank is killed.
  cluster.StartJob(2, {"--slow=2ms"});
  cluster.StartJob(2, {"--slow=2ms"});
  ASSERT_TRUE(cluster.WaitForServing(2));
  const std::vector<Answer> want = AnswersOf(cluster, requests);
  RunningAnswers answers(cluster, requests);
  for (const int rank : {1, 0, 1}) {
    KillRank(cluster.ServingJob(0), rank);  // the older one
    cluster.StartJob(2);
    ASSERT_TRUE(cluster.WaitForStatus([&](const auto& status) { return ServingJobs(status) == 1; },
                                      absl::Seconds(5)));
    ASSERT_TRUE(cluster.WaitForServing(2));
  }
  answers.ExpectEqual(want);
  EXPECT_GE(cluster.Status().migrations(), static_cast<int64_t>(requests.size()) / 2);
}

TEST(RecoveryTest, AnswersMoveBetweenJobsOfUnlikeLayoutsThatServeSideBySide) {
  const std::vector<v1::GenerateRequest> requests = Requests(500);
  Cluster cluster({.worker = "tests/fault/faulty_worker"});
  // Slow enough that no answer has ended when the first rank is killed.
  cluster.StartJob(2, {"--layout=tp=2", "--slow=2ms"});
  ASSERT_TRUE(cluster.WaitForServing(1));
  cluster.StartJob(2, {"--layout=pp=2", "--slow=2ms"});
  ASSERT_TRUE(cluster.WaitForServing(2));
  const cluster::v1::JobStatus shards = cluster.ServingJob(0);
  const cluster::v1::JobStatus stages = cluster.ServingJob(1);
  EXPECT_EQ(shards.plan().layout().tp_size(), 2);
  EXPECT_EQ(stages.plan().layout().pp_size(), 2);
  const std::vector<Answer> want = AnswersOf(cluster, requests);
  RunningAnswers answers(cluster, requests);
  KillRank(shards, 1);
  cluster.StartJob(2, {"--layout=tp=2"});
  ASSERT_TRUE(cluster.WaitForStatus([](const auto& status) { return ServingJobs(status) == 1; },
                                    absl::Seconds(5)));
  ASSERT_TRUE(cluster.WaitForServing(2));
  KillRank(stages, 0);
  answers.ExpectEqual(want);
  EXPECT_GE(cluster.Status().migrations(), static_cast<int64_t>(requests.size()) / 2);
}

TEST(RecoveryTest, AnswersGoOnWithAJobOfAnotherLayoutThatComesInTheMeantime) {
  const std::vector<v1::GenerateRequest> requests = Requests(400);
  Cluster cluster({});
  cluster.StartJob(2);
  ASSERT_TRUE(cluster.WaitForServing(1));
  const cluster::v1::JobStatus first = cluster.ServingJob(0);
  const std::vector<Answer> want = AnswersOf(cluster, requests);
  RunningAnswers answers(cluster, requests);
  KillRank(first, 0);
  ASSERT_TRUE(cluster.WaitForStatus([](const auto& status) { return !status.serving(); },
                                    absl::Seconds(5)));
  cluster.StartJob(1);
  answers.ExpectEqual(want);
  EXPECT_NE(cluster.ServingJob(0).plan().layout().SerializeAsString(),
            first.plan().layout().SerializeAsString());
  EXPECT_GE(cluster.Status().migrations(), 3);
}

}  // namespace
}  // namespace skein::testing

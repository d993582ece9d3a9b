// Stages of a pipeline whose steps are one kernel each, and whose hops wait on the device for the
// other stage: real jobs, of two ranks that have a GPU each, or share one.
#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_testing.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/running_answer.h"
#include "tests/gpu/gpu_job.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;

using Tokens = std::vector<int32_t>;

enum class Stages { kOne, kTwo, kTwoOfWhichOneIsLate };

// Answers to as many requests as run at once, so that micro-batches are in flight. Every step of a
// stage that is late takes 10 ms more.
std::vector<Tokens> AnswersOf(Stages stages) {
  const bool one = stages == Stages::kOne;
  // All steps are small enough, those of prompts, too.
  Cluster cluster({.layout = one ? "pp=1" : "pp=2",
                   .coordinator_flags = {"--max-num-seqs=4", "--max-num-batched-tokens=16",
                                         "--kv-memory=1GiB"}});
  std::vector<std::string> second;
  if (stages == Stages::kTwoOfWhichOneIsLate) {
    second = FaultyDriver("slow:" + cluster.scratch() + "/never");
  }
  Process& job = one ? cluster.StartJob(1, {"--device=cuda", "--decode=persistent"})
                     : StartPair(cluster, second, "nccl", {"--decode=persistent"});
  EXPECT_TRUE(cluster.WaitForServing(1)) << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr("are decoded by one kernel a step"));
  std::vector<std::future<Answer>> running;
  for (const char* prompt : {"ROMEO:", "JULIET:\nO", "First Citizen:", "The"}) {
    v1::GenerateRequest request = GreedyRequest(prompt, 60);
    request.mutable_sampling()->set_ignore_eos(true);
    running.push_back(
        std::async(std::launch::async, [&cluster, request] { return cluster.Generate(request); }));
  }
  std::vector<Tokens> answers;
  for (std::future<Answer>& one : running) {
    const Answer answer = one.get();
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.tokens.size(), 60);
    answers.emplace_back(answer.tokens.begin(), answer.tokens.end());
  }
  return answers;
}

// A row's bits depend neither on what ran together nor on where the pipeline is cut, since what
// stages send is what a layer leaves. Hops of the first stage wait for the second one's: what they
// wait with never keeps a step from running.
TEST(PersistentStagesTest, AnswersAreThoseOfOneStageAlsoWhereOneIsLate) {
  SKEIN_NEED_GPU();
  const std::vector<Tokens> alone = AnswersOf(Stages::kOne);
  EXPECT_EQ(AnswersOf(Stages::kTwo), alone);
  EXPECT_EQ(AnswersOf(Stages::kTwoOfWhichOneIsLate), alone);
}

}  // namespace
}  // namespace skein::testing

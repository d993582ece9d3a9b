// The answers of real jobs, whatever their layout: mpirun, gRPC, bard.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"

namespace skein::testing {
namespace {

constexpr int kAnswerTokens = 64;

std::vector<v1::GenerateRequest> Requests() {
  const char* const kPrompts[] = {
      "ROMEO:",
      "JULIET:\nO ",
      "First Citizen:\n",
      "To be, or not to be",
      "My lord,",
      "KING RICHARD III:\nA horse!",
      "What say you",
      "\n",
      "Enter",
      "the",
      "?",
      "MENENIUS:\nThe belly answer'd",
      "1234567890",
      "Thou art",
      "GLOUCESTER:\nNow is the winter",
      "And so",
      "I ",
      "Good morrow, cousin.\n\nROMEO:\nIs the day so young?\n\nBENVOLIO:\n",
      "é – ü",
      "HENRY BOLINGBROKE:\nMany years of happy days befal\nMy gracious sovereign"};
  std::vector<v1::GenerateRequest> requests;
  for (const char* prompt : kPrompts) {
    requests.push_back(GreedyRequest(prompt, kAnswerTokens));
    requests.back().mutable_sampling()->set_ignore_eos(true);
    v1::GenerateRequest sampled = requests.back();
    sampled.mutable_sampling()->set_temperature(0.8f);
    sampled.mutable_sampling()->set_top_p(0.95f);
    sampled.mutable_sampling()->set_repetition_penalty(1.1f);
    sampled.mutable_sampling()->set_seed(1000 + requests.size());
    requests.push_back(sampled);
  }
  return requests;
}

struct LayoutCase {
  std::string name;
  std::string layout;
  std::vector<int> jobs;  // ranks of each
  int replicas;
};

void PrintTo(const LayoutCase& c, std::ostream* out) { *out << c.name; }

std::vector<Answer> Serve(const LayoutCase& c) {
  Cluster cluster({.layout = c.layout});
  for (size_t i = 0; i < c.jobs.size(); ++i) {
    cluster.StartJob(c.jobs[i]);
    EXPECT_TRUE(cluster.WaitForServing(static_cast<int>(i) + 1));
  }
  int replicas = 0;
  const cluster::v1::ClusterStatus status = cluster.Status();
  for (const auto& job : status.jobs()) replicas += job.replicas_size();
  EXPECT_EQ(replicas, c.replicas);
  return cluster.GenerateAll(Requests());
}

class LayoutsTest : public ::testing::TestWithParam<LayoutCase> {
 protected:
  static const std::vector<Answer>& OneRank() {
    static const auto* answers = new std::vector<Answer>(Serve({"one", "tp=1,pp=1,dp=1", {1}, 1}));
    return *answers;
  }
};

TEST_P(LayoutsTest, AnswersAreThoseOfOneRank) {
  const std::vector<Answer>& want = OneRank();
  const std::vector<Answer> got = Serve(GetParam());
  ASSERT_EQ(got.size(), 40u);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(want[i].status.ok()) << want[i].status.error_message();
    ASSERT_TRUE(got[i].status.ok()) << got[i].status.error_message();
    EXPECT_EQ(want[i].tokens.size(), static_cast<size_t>(kAnswerTokens));
    EXPECT_EQ(got[i].tokens, want[i].tokens) << "request " << i;
    EXPECT_EQ(got[i].text, want[i].text) << "request " << i;
    EXPECT_EQ(got[i].reason, want[i].reason) << "request " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, LayoutsTest,
                         ::testing::Values(LayoutCase{"tp2", "tp=2,pp=1", {2}, 1},
                                           LayoutCase{"tp4", "tp=4,pp=1", {4}, 1},
                                           LayoutCase{"pp2", "tp=1,pp=2", {2}, 1},
                                           LayoutCase{"pp8", "tp=1,pp=8", {8}, 1},
                                           LayoutCase{"dp2", "tp=1,pp=1,dp=2", {2}, 2},
                                           LayoutCase{"tp2_pp2", "tp=2,pp=2", {4}, 1},
                                           LayoutCase{"tp4_pp2", "tp=4,pp=2", {8}, 1},
                                           LayoutCase{"tp2_pp2_dp2", "tp=2,pp=2,dp=2", {8}, 2},
                                           LayoutCase{"two_jobs", "tp=2,pp=2", {4, 4}, 2}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::testing

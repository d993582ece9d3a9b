#include "tests/soak/lone_answers.h"

#include <random>

#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"

namespace skein::testing {
namespace {

constexpr const char* kOpenings[] = {
    "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n\n",
    "ROMEO:\nIs the day so young?\n\nBENVOLIO:\nBut new struck nine.\n\nROMEO:\nAy me! sad hours ",
    "GLOUCESTER:\nNow is the winter of our discontent\nMade glorious summer by this sun of York;\n",
};
constexpr const char* kWords[] = {"the ",      "king ", "my ", "lord, ", "shall ", "not ", "\n",
                                  "JULIET:\n", "and ",  "é ",  "sword ", "die; ",  "O ",   "love "};

v1::GenerateRequest MakeRequest(std::mt19937& random, uint32_t min_tokens, uint32_t max_tokens) {
  v1::GenerateRequest request;
  std::string prompt = kOpenings[random() % std::size(kOpenings)];
  prompt.resize(random() % prompt.size());
  const int words = static_cast<int>(1 + random() % 60);
  for (int i = 0; i < words; ++i) prompt += kWords[random() % std::size(kWords)];
  request.set_prompt(prompt);
  request.set_max_tokens(min_tokens + random() % (max_tokens - min_tokens + 1));
  v1::Sampling& sampling = *request.mutable_sampling();
  sampling.set_temperature(random() % 2 == 0 ? 0.0f : 0.8f);
  sampling.set_repetition_penalty(random() % 3 == 0 ? 1.1f : 1.0f);
  sampling.set_seed(random());
  return request;
}

}  // namespace

void LoneAnswer::ExpectEqual(const Answer& got) const {
  EXPECT_TRUE(got.status.ok()) << got.status.error_message();
  EXPECT_EQ(got.tokens, tokens);
  EXPECT_EQ(got.text, text);
  EXPECT_EQ(got.reason, reason);
}

std::vector<LoneAnswer> MakeLoneAnswers(int count, uint32_t min_tokens, uint32_t max_tokens) {
  Cluster cluster({.layout = "tp=1,pp=1"});
  cluster.StartJob(1);
  EXPECT_TRUE(cluster.WaitForServing(1));
  std::mt19937 random(20);
  std::vector<LoneAnswer> answers;
  for (int i = 0; i < count; ++i) {
    LoneAnswer& lone = answers.emplace_back();
    lone.request = MakeRequest(random, min_tokens, max_tokens);
    v1::GenerateRequest request = lone.request;
    request.set_prompt_logprobs(0);  // takes nothing from the prefix cache
    const Answer answer = cluster.Generate(request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_NE(answer.reason, v1::Finished::REASON_UNSPECIFIED);
    lone.tokens = answer.tokens;
    lone.text = answer.text;
    lone.reason = answer.reason;
  }
  const cluster::v1::ReplicaLoad load = cluster.ServingJob(0).replicas(0).load();
  EXPECT_GT(load.prompt_tokens(), count);
  EXPECT_EQ(load.cached_tokens(), 0);
  return answers;
}

}  // namespace skein::testing

// Holds the sampler against a table that an independent script made; tests/golden/README.md has the
// format.
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <vector>

#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/sampling/sampling.h"
#include "kernels/sampling/shards.h"
#include "kernels/sampling/survivors.h"
#include "nlohmann/json.hpp"

namespace skein::kernels {
namespace {

using ::nlohmann::json;

json Golden() {
  std::ifstream file("tests/golden/sampling.json");
  return json::parse(file);
}

TEST(UniformDrawTest, Golden) {
  const json rows = Golden()["uniform"];
  ASSERT_GT(rows.size(), 40u);
  for (const json& row : rows) {
    const float draw = UniformDraw(row["seed"], row["position"], row.value("sample", 0u));
    EXPECT_EQ(double{draw}, row["uniform"].get<double>()) << row;
  }
}

std::vector<float> Logits(const json& values) {
  std::vector<float> logits;
  for (const json& v : values)
    logits.push_back(v.is_null() ? -std::numeric_limits<float>::infinity() : v.get<float>());
  return logits;
}

// Sets the parameters that the table lists only where a case needs them.
void AddExtras(const json& p, serving::SamplingParams& params) {
  const auto set = [&](const char* name, auto& value) { value = p.value(name, value); };
  for (const json& bias : p.value("logit_bias", json::array())) {
    params.logit_bias.push_back({bias[0], bias[1]});
  }
  set("sample", params.answer);
  set("min_tokens", params.min_tokens);
  set("stop_ids", params.stop_ids);
  set("typical_p", params.typical_p);
  set("mirostat_tau", params.mirostat_tau);
  set("mirostat_eta", params.mirostat_eta);
  set("dry_multiplier", params.dry_multiplier);
  set("dry_base", params.dry_base);
  set("dry_allowed_length", params.dry_allowed_length);
  set("dry_last_n", params.dry_last_n);
  set("dry_breakers", params.dry_breakers);
}

serving::SamplingParams Params(const json& p) {
  serving::SamplingParams params = {.repetition_penalty = p["repetition_penalty"],
                                    .presence_penalty = p["presence_penalty"],
                                    .frequency_penalty = p["frequency_penalty"],
                                    .temperature = p["temperature"],
                                    .top_k = p["top_k"],
                                    .top_p = p["top_p"],
                                    .min_p = p["min_p"],
                                    .seed = p["seed"],
                                    .logprobs = 3};
  AddExtras(p, params);
  return params;
}

void ExpectLogprobs(const serving::SampledToken& token, const json& expected) {
  EXPECT_NEAR(token.logprob, expected["logprob"].get<double>(), 1e-5);
  const json& top = expected["top_logprobs"];
  ASSERT_GE(token.top_logprobs.size(), top.size());
  for (size_t i = 0; i < top.size(); ++i) {
    EXPECT_EQ(token.top_logprobs[i].id, top[i][0].get<int32_t>());
    EXPECT_NEAR(token.top_logprobs[i].logprob, top[i][1].get<double>(), 1e-5);
  }
}

TEST(SampleTest, Golden) {
  const json cases = Golden()["cases"];
  ASSERT_GT(cases.size(), 250u);
  for (const json& c : cases) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const std::vector<float> logits = Logits(c["logits"]);
    const serving::SamplingParams params = Params(c["params"]);
    const std::vector<int32_t> prompt = c["prompt"];
    const std::vector<int32_t> output = c["output"];
    const bool has_mu = c.contains("mu") && !c["mu"].is_null();
    const std::optional<float> mu = has_mu ? c["mu"].get<float>() : std::optional<float>();

    SKEIN_ASSERT_OK_AND_ASSIGN(auto survivors, Survivors(logits, params, prompt, output, mu));
    std::erase_if(survivors, [](const TokenProbability& t) { return t.probability < 1e-9; });
    ASSERT_EQ(survivors.size(), c["survivors"].size());
    for (size_t i = 0; i < survivors.size(); ++i) {
      EXPECT_EQ(survivors[i].id, c["survivors"][i].get<int32_t>());
      EXPECT_NEAR(survivors[i].probability, c["probabilities"][i].get<double>(), 1e-5);
    }

    SKEIN_ASSERT_OK_AND_ASSIGN(const serving::SampledToken token,
                               Sample(logits, params, prompt, output, c["position"], mu));
    EXPECT_EQ(token.id, c["chosen"].get<int32_t>());
    EXPECT_NEAR(token.mu, c.value("next_mu", 0.0), 1e-5);
    ExpectLogprobs(token, c);
  }
}

TEST(PromptLogprobsTest, Golden) {
  const json rows = Golden()["prompt_logprobs"];
  ASSERT_GE(rows.size(), 9u);
  for (const json& row : rows) {
    SCOPED_TRACE(row.dump());
    const std::vector<float> logits = Logits(row["logits"]);
    SKEIN_ASSERT_OK_AND_ASSIGN(const serving::SampledToken token,
                               Answer({.vocabulary = static_cast<int64_t>(logits.size()),
                                       .token = row["id"],
                                       .logprobs = row["count"]},
                                      logits));
    EXPECT_EQ(token.id, row["id"].get<int32_t>());
    EXPECT_LE(token.top_logprobs.size(), row["count"].get<size_t>());
    ExpectLogprobs(token, row);
  }
}

}  // namespace
}  // namespace skein::kernels

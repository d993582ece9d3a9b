// Sampling flags of `skein generate`: the answers that only they give.
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/ask.h"
#include "tests/flags/skein_cases.h"

namespace skein::testing {
namespace {

using ::testing::Contains;
using ::testing::Gt;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kGreedy[] = "--prompt=ROMEO: --max-tokens=60 --temperature=0";
constexpr char kRandom[] = "--prompt=ROMEO: --max-tokens=60 --seed=7";
// Greedy, and ends by itself after 14 tokens.
constexpr char kEnds[] = "--prompt=ROMEO: --max-tokens=60 --temperature=0 --presence-penalty=5";

// A request that gives one answer without the flag, always, and another one with it.
struct Changes {
  const char* flag;
  std::string request;
  std::string value;
};

std::vector<Changes> ChangingFlags() {
  const std::string dry = absl::StrCat(kGreedy, " --dry-multiplier=0.2");
  return {
      {"--typical-p", kRandom, "0.1"},
      {"--mirostat-tau", kRandom, "1"},
      {"--mirostat-eta", absl::StrCat(kRandom, " --mirostat-tau=1"), "1"},
      {"--repetition-penalty", kGreedy, "1.3"},
      {"--presence-penalty", kGreedy, "0.3"},
      {"--frequency-penalty", kGreedy, "0.3"},
      {"--dry-multiplier", kGreedy, "0.2"},
      {"--dry-base", dry, "8"},
      {"--dry-allowed-length", dry, "8"},
      {"--dry-last-n", absl::StrCat(dry, " --dry-base=8"), "10"},
      {"--dry-breaker", absl::StrCat(dry, " --dry-base=8"), "' am'"},
  };
}

// Of a random answer, the flag's value leaves the most likely token alone.
struct MakesGreedy {
  const char* flag;
  const char* value;
};
constexpr MakesGreedy kMakesGreedy[] = {
    {"--temperature", "0"}, {"--top-k", "1"}, {"--top-p", "0.000001"}, {"--min-p", "1"}};

class Sampling {
 public:
  explicit Sampling(SharedCluster& shared) : shared_(shared) {}

  Asked Of(const std::string& flags) const {
    Asked asked = Ask(shared_.address(), flags);
    EXPECT_TRUE(asked.outcome.ok()) << flags << ": " << asked.outcome.err;
    EXPECT_THAT(asked.ids, Not(IsEmpty())) << flags;
    return asked;
  }

  void ExpectChanges(const Changes& c) const {
    const Asked without = Of(c.request);
    EXPECT_EQ(Of(c.request).ids, without.ids) << c.request << " is not the same every time";
    EXPECT_NE(Of(absl::StrCat(c.request, " ", c.flag, "=", c.value)).ids, without.ids);
  }

  void ExpectMakesGreedy(const MakesGreedy& c) const {
    const Asked greedy = Of(kGreedy);
    EXPECT_NE(Of(kRandom).ids, greedy.ids);
    EXPECT_EQ(Of(absl::StrCat(kRandom, " ", c.flag, "=", c.value)).ids, greedy.ids);
  }

  // Two random seeds practically never draw the same 60 tokens.
  void Seed() const {
    const std::string request = "--prompt=ROMEO: --max-tokens=60";
    const Asked seven = Of(absl::StrCat(request, " --seed=7"));
    EXPECT_EQ(Of(absl::StrCat(request, " --seed=7")).ids, seven.ids);
    EXPECT_NE(Of(absl::StrCat(request, " --seed=8")).ids, seven.ids);
    EXPECT_EQ(seven.accepted.at("seed"), "7");
  }

  void LogitBias() const {
    EXPECT_THAT(Of(kGreedy).ids, Contains(41));
    EXPECT_THAT(Of(absl::StrCat(kGreedy, " --logit-bias=41=-100")).ids, Not(Contains(41)));
  }

  void MinTokens() const {
    EXPECT_THAT(Of(kEnds).ids, SizeIs(14));
    EXPECT_THAT(Of(absl::StrCat(kEnds, " --min-tokens=30")).ids, SizeIs(Gt(29)));
  }

  void IgnoreEos() const {
    const Asked ends = Of(kEnds);
    EXPECT_EQ(ends.reason(), "REASON_EOS");
    const Asked goes_on = Of(absl::StrCat(kEnds, " --ignore-eos"));
    EXPECT_EQ(goes_on.reason(), "REASON_MAX_TOKENS");
    EXPECT_EQ(goes_on.ids[ends.ids.size() - 1], ends.ids.back());  // the end itself is drawn
  }

  void Logprobs() const {
    for (const auto& token : Of(kGreedy).tokens) EXPECT_FALSE(token.contains("logprob"));
    const Asked asked = Of(absl::StrCat(kGreedy, " --logprobs=2"));
    for (const auto& token : asked.tokens) {
      EXPECT_TRUE(token.contains("logprob"));
      EXPECT_THAT(token.at("top_logprobs"), SizeIs(2));
    }
  }

 private:
  SharedCluster& shared_;
};

}  // namespace

FlagCases SamplingCases(SharedCluster& shared) {
  const Sampling sampling(shared);
  FlagCases cases = {
      {{"generate", "--seed"}, [=] { sampling.Seed(); }},
      {{"generate", "--logit-bias"}, [=] { sampling.LogitBias(); }},
      {{"generate", "--min-tokens"}, [=] { sampling.MinTokens(); }},
      {{"generate", "--ignore-eos"}, [=] { sampling.IgnoreEos(); }},
      {{"generate", "--logprobs"}, [=] { sampling.Logprobs(); }},
  };
  for (const Changes& c : ChangingFlags()) {
    cases.push_back({{"generate", c.flag}, [=] { sampling.ExpectChanges(c); }});
  }
  for (const MakesGreedy& c : kMakesGreedy) {
    cases.push_back({{"generate", c.flag}, [=] { sampling.ExpectMakesGreedy(c); }});
  }
  return cases;
}

}  // namespace skein::testing

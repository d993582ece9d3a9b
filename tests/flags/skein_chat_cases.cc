// Flags of `skein chat`: what they change in its answers.
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/ask.h"
#include "tests/flags/skein_cases.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;

class Chats {
 public:
  explicit Chats(SharedCluster& shared) : shared_(shared) {}

  void System() const {
    EXPECT_NE(Answer("--temperature=0 --system=Die"), Answer("--temperature=0"));
  }
  void Model() const {
    EXPECT_EQ(Answer("--temperature=0 --model=bard"), Answer("--temperature=0"));
    EXPECT_THAT(Chat("--model=another").err, HasSubstr("'another'"));
  }
  void MaxTokens() const {
    const std::string whole = Answer("--temperature=0");
    const std::string begin = Answer("--temperature=0 --max-tokens=3");
    EXPECT_LT(begin.size(), 30u);
    EXPECT_GT(whole.size(), begin.size());
  }
  void Temperature() const {
    EXPECT_EQ(Answer("--temperature=0 --seed=1"), Answer("--temperature=0 --seed=2"));
    EXPECT_NE(Answer("--temperature=0 --seed=1"), Answer("--seed=1"));
  }
  // Both leave the most likely token alone.
  void TopK() const { EXPECT_EQ(Answer("--top-k=1 --seed=1"), Answer("--temperature=0")); }
  void TopP() const { EXPECT_EQ(Answer("--top-p=0.000001 --seed=1"), Answer("--temperature=0")); }
  void Seed() const {
    EXPECT_EQ(Answer("--seed=1"), Answer("--seed=1"));
    EXPECT_NE(Answer("--seed=1"), Answer("--seed=2"));
  }

 private:
  // Of 40 tokens where nothing else is said.
  Outcome Chat(const std::string& flags) const {
    const bool limited = flags.find("--max-tokens") != std::string::npos;
    return Run("sh", absl::StrCat("-c 'echo Good morrow, cousin. | ", kSkein,
                                  " chat --coordinator=", shared_.address(), " ", flags,
                                  limited ? "" : " --max-tokens=40", "'"));
  }
  std::string Answer(const std::string& flags) const {
    const Outcome outcome = Chat(flags);
    EXPECT_TRUE(outcome.ok()) << outcome.err;
    EXPECT_FALSE(outcome.out.empty());
    return outcome.out;
  }

  SharedCluster& shared_;
};

}  // namespace

FlagCases ChatCases(SharedCluster& shared) {
  const Chats chats(shared);
  return {HelpCase(kSkein, "chat"),
          {{"chat", "--system"}, [=] { chats.System(); }},
          {{"chat", "--model"}, [=] { chats.Model(); }},
          {{"chat", "--max-tokens"}, [=] { chats.MaxTokens(); }},
          {{"chat", "--temperature"}, [=] { chats.Temperature(); }},
          {{"chat", "--top-k"}, [=] { chats.TopK(); }},
          {{"chat", "--top-p"}, [=] { chats.TopP(); }},
          {{"chat", "--seed"}, [=] { chats.Seed(); }}};
}

}  // namespace skein::testing

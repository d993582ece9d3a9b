#include "coordinator/access/key_usage.h"

#include <optional>
#include <vector>

#include "base/test_util.h"

namespace skein::coordinator {
namespace {

using serving::KeyLimits;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class KeyUsageTest : public ::testing::Test {
 protected:
  void Advance(double seconds) { clock_.Advance(absl::Seconds(seconds)); }
  // Begins and ends a request.
  bool Asks(const std::string& name, const KeyLimits& limits) {
    if (usage_.Begin(name, limits).has_value()) return false;
    usage_.End(name);
    return true;
  }

  SimulatedClock clock_{absl::FromUnixSeconds(1000)};
  KeyUsage usage_{&clock_};
};

TEST_F(KeyUsageTest, WithoutLimitsAllIsTaken) {
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(usage_.Begin("a", {}).has_value());
  EXPECT_FALSE(usage_.AddPrompt("a", {}, 1'000'000).has_value());
}

TEST_F(KeyUsageTest, RequestsCountForAMinuteThatSlides) {
  const KeyLimits limits = {.requests_per_minute = 2};
  EXPECT_TRUE(Asks("a", limits));
  Advance(30.5);
  EXPECT_TRUE(Asks("a", limits));
  Advance(9.5);
  const std::optional<Excess> excess = usage_.Begin("a", limits);
  ASSERT_TRUE(excess.has_value());
  EXPECT_EQ(excess->limit, "requests-per-minute");
  EXPECT_EQ(excess->allowed, 2);
  EXPECT_EQ(excess->wanted, 3);
  EXPECT_EQ(excess->again_after, absl::Seconds(21));  // 1000 + 61 - 1040
  EXPECT_TRUE(Asks("b", limits));                     // another key
  Advance(20.99);
  EXPECT_FALSE(Asks("a", limits));
  Advance(0.01);
  EXPECT_TRUE(Asks("a", limits));
  EXPECT_FALSE(Asks("a", limits));  // those of 1030 and of 1061
  Advance(29.99);
  EXPECT_FALSE(Asks("a", limits));
  Advance(0.01);
  EXPECT_TRUE(Asks("a", limits));
}

TEST_F(KeyUsageTest, WhatIsRefusedIsNotCounted) {
  const KeyLimits limits = {.requests_per_minute = 1};
  EXPECT_TRUE(Asks("a", limits));
  for (int i = 0; i < 61; ++i) {
    EXPECT_FALSE(Asks("a", limits)) << i;
    Advance(1);
  }
  EXPECT_TRUE(Asks("a", limits));
}

TEST_F(KeyUsageTest, PromptsAndAnswersShareTokens) {
  const KeyLimits limits = {.tokens_per_minute = 100};
  EXPECT_FALSE(usage_.Begin("a", limits).has_value());
  EXPECT_FALSE(usage_.AddPrompt("a", limits, 60).has_value());
  Advance(10);
  usage_.AddAnswer("a", 30);
  Advance(1);
  const std::optional<Excess> excess = usage_.AddPrompt("a", limits, 11);
  ASSERT_TRUE(excess.has_value());
  EXPECT_EQ(excess->limit, "tokens-per-minute");
  EXPECT_EQ(excess->allowed, 100);
  EXPECT_EQ(excess->wanted, 101);
  EXPECT_EQ(excess->again_after, absl::Seconds(50));
  // The first second's 60 are not enough for it.
  EXPECT_EQ(usage_.AddPrompt("a", limits, 71)->again_after, absl::Seconds(60));
  EXPECT_FALSE(usage_.AddPrompt("a", limits, 10).has_value());
}

TEST_F(KeyUsageTest, AnswersMayGoOverAndAreWaitedFor) {
  const KeyLimits limits = {.tokens_per_minute = 100};
  EXPECT_FALSE(usage_.Begin("a", limits).has_value());
  usage_.AddAnswer("a", 99);
  EXPECT_TRUE(Asks("a", limits));
  usage_.AddAnswer("a", 1);
  const std::optional<Excess> excess = usage_.Begin("a", limits);
  ASSERT_TRUE(excess.has_value());
  EXPECT_EQ(excess->limit, "tokens-per-minute");
  EXPECT_EQ(excess->again_after, absl::Seconds(61));
}

TEST_F(KeyUsageTest, APromptOfMoreThanAMinuteNeverFits) {
  const KeyLimits limits = {.tokens_per_minute = 100};
  EXPECT_EQ(usage_.AddPrompt("a", limits, 101)->again_after, absl::InfiniteDuration());
  EXPECT_FALSE(usage_.AddPrompt("a", limits, 100).has_value());  // nothing was counted
}

TEST_F(KeyUsageTest, StreamsEnd) {
  const KeyLimits limits = {.streams = 2};
  EXPECT_FALSE(usage_.Begin("a", limits).has_value());
  EXPECT_FALSE(usage_.Begin("a", limits).has_value());
  Advance(3600);  // time ends none
  const std::optional<Excess> excess = usage_.Begin("a", limits);
  ASSERT_TRUE(excess.has_value());
  EXPECT_EQ(excess->limit, "streams");
  EXPECT_EQ(excess->wanted, 3);
  EXPECT_EQ(excess->again_after, absl::Seconds(1));
  EXPECT_FALSE(usage_.Begin("b", limits).has_value());
  usage_.End("a");
  EXPECT_FALSE(usage_.Begin("a", limits).has_value());
}

TEST_F(KeyUsageTest, TheLimitThatLastsLongestIsTold) {
  const KeyLimits limits = {.requests_per_minute = 1, .tokens_per_minute = 10, .streams = 1};
  EXPECT_FALSE(usage_.Begin("a", limits).has_value());
  EXPECT_EQ(usage_.Begin("a", limits)->limit, "requests-per-minute");
  Advance(5);
  usage_.AddAnswer("a", 10);
  EXPECT_EQ(usage_.Begin("a", limits)->limit, "tokens-per-minute");
}

TEST_F(KeyUsageTest, ChangesAreTakenOnceAndRestored) {
  EXPECT_FALSE(usage_.Begin("a", {}).has_value());
  EXPECT_FALSE(usage_.AddPrompt("a", {}, 5).has_value());
  Advance(1);
  usage_.AddAnswer("a", 2);
  EXPECT_FALSE(usage_.Begin("b", {}).has_value());
  const std::vector<SecondOfUse> changes = usage_.TakeChanges();
  EXPECT_THAT(changes, ElementsAre(SecondOfUse{"a", 1000, 1, 5}, SecondOfUse{"a", 1001, 0, 2},
                                   SecondOfUse{"b", 1001, 1, 0}));
  EXPECT_THAT(usage_.TakeChanges(), IsEmpty());
  usage_.AddAnswer("a", 3);
  EXPECT_THAT(usage_.TakeChanges(), ElementsAre(SecondOfUse{"a", 1001, 0, 5}));

  KeyUsage other(&clock_);
  other.Restore(changes);
  EXPECT_EQ(other.AddPrompt("a", {.tokens_per_minute = 10}, 4)->wanted, 11);
  EXPECT_FALSE(other.AddPrompt("a", {.tokens_per_minute = 10}, 3).has_value());
}

TEST_F(KeyUsageTest, WhatIsOldOrOfTimesToComeIsNotRestored) {
  usage_.Restore({{"a", 939, 1, 0}, {"a", 940, 1, 0}, {"a", 1000, 1, 0}, {"a", 1001, 1, 0}});
  EXPECT_EQ(usage_.Begin("a", {.requests_per_minute = 2})->wanted, 3);
  EXPECT_TRUE(Asks("a", {.requests_per_minute = 3}));
  EXPECT_EQ(usage_.FirstSecond(), 940);
}

TEST_F(KeyUsageTest, AClockThatIsSetBackForgets) {
  EXPECT_TRUE(Asks("a", {}));
  Advance(-100);
  EXPECT_TRUE(Asks("a", {.requests_per_minute = 1}));
}

TEST_F(KeyUsageTest, StreamsOutliveTheMinuteInWhichNothingElseIsUsed) {
  EXPECT_FALSE(usage_.Begin("a", {}).has_value());
  Advance(100);
  EXPECT_THAT(usage_.TakeChanges(), IsEmpty());
  EXPECT_TRUE(usage_.Begin("a", {.streams = 1}).has_value());
}

}  // namespace
}  // namespace skein::coordinator

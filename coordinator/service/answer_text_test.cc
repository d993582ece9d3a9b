#include "coordinator/service/answer_text.h"

#include <string>
#include <vector>

#include "coordinator/service/fake_tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::ElementsAre;

TEST(AnswerTextTest, ACharacterComesWhole) {
  const FakeTokenizer tokenizer;
  AnswerText text(&tokenizer, {});
  std::vector<std::string> pieces;
  for (const char byte : std::string("a\xE2\x82\xAC!")) {
    pieces.push_back(text.Push(static_cast<uint8_t>(byte)));
  }
  EXPECT_THAT(pieces, ElementsAre("a", "", "", "€", "!"));
  EXPECT_EQ(text.Finish(), "");
}

TEST(AnswerTextTest, WhatCanBelongToNoCharacterIsReplaced) {
  const FakeTokenizer tokenizer({"\xE2\x82"});
  AnswerText text(&tokenizer, {});
  EXPECT_EQ(text.Push(0xFF), "\uFFFD");
  EXPECT_EQ(text.Push(FakeTokenizer::kFirstWord), "");
  EXPECT_EQ(text.Finish(), "\uFFFD");
}

TEST(AnswerTextTest, AStopStringMayCutTokensAndCharacters) {
  const FakeTokenizer tokenizer({"say ROM", "EO: no"});
  AnswerText text(&tokenizer, {"ROMEO:"});
  EXPECT_EQ(text.Push(FakeTokenizer::kFirstWord), "say ");
  EXPECT_EQ(text.stop(), nullptr);
  EXPECT_EQ(text.Push(FakeTokenizer::kFirstWord + 1), "");
  ASSERT_NE(text.stop(), nullptr);
  EXPECT_EQ(*text.stop(), "ROMEO:");
  EXPECT_EQ(text.Finish(), "");

  AnswerText bytes(&tokenizer, {"\x82"});
  EXPECT_EQ(bytes.Push(0xE2), "");
  EXPECT_EQ(bytes.Push(0x82), "");
  ASSERT_NE(bytes.stop(), nullptr);
  EXPECT_EQ(bytes.Finish(), "\uFFFD");
}

TEST(AnswerTextTest, WhatWasHeldBackComesAtTheEnd) {
  const FakeTokenizer tokenizer;
  AnswerText text(&tokenizer, {"xyz"});
  EXPECT_EQ(text.Push('x'), "");
  EXPECT_EQ(text.Push('y'), "");
  EXPECT_EQ(text.Finish(), "xy");
}

}  // namespace
}  // namespace skein::coordinator

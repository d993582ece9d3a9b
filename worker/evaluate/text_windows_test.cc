#include "worker/evaluate/text_windows.h"

#include <algorithm>
#include <set>

#include "base/test_util.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CutWindowsTest, WindowsByHand) {
  // Two of the four tokens of a window are new to it.
  EXPECT_THAT(*CutWindows(7, {.context = 4, .stride = 2}),
              ElementsAre(TextWindow{0, 4, 1}, TextWindow{2, 6, 4}, TextWindow{4, 7, 6}));
  // A token of the model's begins each, so that three are the text's and its first one is scored.
  EXPECT_THAT(*CutWindows(7, {.context = 4, .stride = 2, .has_begin = true}),
              ElementsAre(TextWindow{0, 3, 0}, TextWindow{2, 5, 3}, TextWindow{4, 7, 5}));
  // Windows that do not overlap have a first token that nothing foretells.
  EXPECT_THAT(*CutWindows(8, {.context = 4, .stride = 4}),
              ElementsAre(TextWindow{0, 4, 1}, TextWindow{4, 8, 5}));
  EXPECT_THAT(*CutWindows(9, {.context = 4, .stride = 4}),
              ElementsAre(TextWindow{0, 4, 1}, TextWindow{4, 8, 5}));
  EXPECT_THAT(*CutWindows(6, {.context = 4, .stride = 3, .has_begin = true}),
              ElementsAre(TextWindow{0, 3, 0}, TextWindow{3, 6, 3}));
  EXPECT_THAT(*CutWindows(3, {.context = 512, .stride = 256}), ElementsAre(TextWindow{0, 3, 1}));
  EXPECT_THAT(*CutWindows(1, {.context = 512, .stride = 256, .has_begin = true}),
              ElementsAre(TextWindow{0, 1, 0}));
}

// Of any sizes: each token is scored once, in a window with as much before it as was promised.
TEST(CutWindowsTest, EveryTokenIsScoredOnce) {
  for (const bool has_begin : {false, true}) {
    for (int64_t context = 2; context < 12; ++context) {
      const int64_t most = context - (has_begin ? 1 : 0);
      for (int64_t stride = 1; stride <= most; ++stride) {
        for (int64_t tokens = 2; tokens < 40; ++tokens) {
          SCOPED_TRACE(::testing::Message()
                       << has_begin << " " << context << " " << stride << " " << tokens);
          SKEIN_ASSERT_OK_AND_ASSIGN(
              const auto windows,
              CutWindows(tokens, {.context = context, .stride = stride, .has_begin = has_begin}));
          std::multiset<int64_t> scored;
          for (const TextWindow& window : windows) {
            ASSERT_LE(window.end - window.begin, most);
            ASSERT_LE(window.end, tokens);
            ASSERT_EQ(window.begin % stride, 0);
            for (int64_t i = window.first_scored; i < window.end; ++i) {
              scored.insert(i);
              const int64_t before = i - window.begin + (has_begin ? 1 : 0);
              ASSERT_GE(before, std::min<int64_t>(i, std::max<int64_t>(context - stride, 1)));
            }
          }
          for (int64_t i = 0; i < tokens; ++i) {
            const bool is_first = !has_begin && (i == 0 || (stride == most && i % stride == 0));
            ASSERT_EQ(scored.count(i), is_first ? 0u : 1u) << i;
          }
        }
      }
    }
  }
}

TEST(CutWindowsTest, WhatScoresNothingIsRefused) {
  const auto refused = [](int64_t tokens, const WindowOptions& options, const char* says) {
    EXPECT_THAT(CutWindows(tokens, options),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(says)));
  };
  refused(10, {.context = 1, .stride = 1}, "--context: a window of 1");
  refused(10, {.context = 4, .stride = 5}, "--stride: must be from 1 to 4");
  refused(10, {.context = 4, .stride = 4, .has_begin = true}, "--stride: must be from 1 to 3");
  refused(10, {.context = 4, .stride = 0}, "--stride");
  refused(1, {.context = 4, .stride = 2}, "TEXT: its 1 tokens are too few");
  refused(0, {.context = 4, .stride = 2, .has_begin = true}, "TEXT: its 0 tokens");
}

}  // namespace
}  // namespace skein::worker

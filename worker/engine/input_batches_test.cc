#include "worker/engine/input_batches.h"

#include <cstdint>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kPage = 4;

absl::StatusOr<int32_t> NoToken(SequenceId) { return absl::InternalError("nobody asks"); }

StepOrder TwoSequences() {
  return {.started = {{.id = 1}, {.id = 2}},
          .tables = {{.id = 1, .pages = {5, 3}}, {.id = 2, .pages = {7, 9, 2}}}};
}

TEST(InputBatchesTest, RowsFollowThePages) {
  InputBatches batches({.page_size = kPage, .embeds = true, .has_logits = true});
  SKEIN_ASSERT_OK(batches.Update(TwoSequences()));
  const auto batch = batches.Fill({{.id = 1, .begin = 3, .tokens = {30, 40}, .sample = true},
                                   {.id = 2, .begin = 8, .tokens = {kSampledToken}}},
                                  [](SequenceId id) { return static_cast<int32_t>(100 * id); });
  SKEIN_ASSERT_OK(batch.status());
  EXPECT_THAT(batch->token_ids, ElementsAre(30, 40, 200));
  EXPECT_THAT(batch->positions, ElementsAre(3, 4, 8));
  EXPECT_THAT(batch->kv_slots, ElementsAre(5 * kPage + 3, 3 * kPage, 2 * kPage));
  EXPECT_THAT(batch->row_begin, ElementsAre(0, 2, 3));
  EXPECT_THAT(batch->context_lengths, ElementsAre(5, 9));
  EXPECT_THAT(batch->page_table, ElementsAre(5, 3, 0, 7, 9, 2));
  EXPECT_EQ(batch->page_table_stride, 3);
  EXPECT_THAT(batch->output_rows, ElementsAre(1));
}

TEST(InputBatchesTest, AMiddleStageNeedsNeitherTokensNorOutputs) {
  InputBatches batches({.page_size = kPage});
  SKEIN_ASSERT_OK(batches.Update(TwoSequences()));
  const auto batch =
      batches.Fill({{.id = 1, .begin = 3, .tokens = {kSampledToken}, .sample = true}}, NoToken);
  SKEIN_ASSERT_OK(batch.status());
  EXPECT_THAT(batch->token_ids, IsEmpty());
  EXPECT_THAT(batch->output_rows, IsEmpty());
}

TEST(InputBatchesTest, PagesFromSomewhereOnAreReplaced) {
  InputBatches batches({.page_size = kPage});
  SKEIN_ASSERT_OK(batches.Update(TwoSequences()));
  SKEIN_ASSERT_OK(batches.Update({.tables = {{.id = 2, .first = 1, .pages = {4}}}}));
  const auto batch = batches.Fill({{.id = 2, .begin = 7, .tokens = {1}}}, NoToken);
  SKEIN_ASSERT_OK(batch.status());
  EXPECT_THAT(batch->page_table, ElementsAre(7, 4));
  EXPECT_THAT(batches.Fill({{.id = 2, .begin = 8, .tokens = {1}}}, NoToken).status().message(),
              HasSubstr("positions 8 to 9 of sequence 2, which has 2 pages of 4"));
}

TEST(InputBatchesTest, BrokenOrdersAreNamed) {
  InputBatches batches({.page_size = kPage});
  SKEIN_ASSERT_OK(batches.Update(TwoSequences()));
  EXPECT_THAT(batches.Update({.tables = {{.id = 1, .first = 3, .pages = {4}}}}).message(),
              HasSubstr("a hole before page 3 of sequence 1"));
  EXPECT_THAT(batches.Update({.copies = {{.from = 0, .to = 1}}}).message(),
              HasSubstr("pages that this rank does not have"));
  SKEIN_ASSERT_OK(batches.Update({.ended = {1}}));
  EXPECT_THAT(batches.Fill({{.id = 1, .tokens = {1}}}, NoToken).status().message(),
              HasSubstr("sequence 1, which was never started"));
}

}  // namespace
}  // namespace skein::worker

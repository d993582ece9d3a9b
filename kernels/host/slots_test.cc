#include "kernels/host/slots.h"

#include <cstdint>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kPage = 4;
constexpr Limits kLimits{.rows = 16, .outputs = 16, .slots = 3, .slot_pages = 4};
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class SlotsTest : public ::testing::Test {
 protected:
  SlotsTest() {
    SKEIN_EXPECT_OK(slots_.Update({.updates = {{.slot = 0, .length = 3, .pages = {5, 3}},
                                               {.slot = 2, .length = 8, .pages = {7, 9, 2}}}}));
  }
  SlotStates slots_{kLimits, kPage};
  HostBatch rows_;
};

TEST_F(SlotsTest, RowsFollowLengthsAndPages) {
  slots_.SetToken(2, 200);
  SKEIN_ASSERT_OK(slots_.Fill({.sequences = {{.slot = 0, .rows = 2, .outputs = 1}, {.slot = 2}},
                               .token_ids = {30, 40, kNewestToken}},
                              rows_));
  EXPECT_THAT(rows_.token_ids, ElementsAre(30, 40, 200));
  EXPECT_THAT(rows_.positions, ElementsAre(3, 4, 8));
  EXPECT_THAT(rows_.kv_slots, ElementsAre(5 * kPage + 3, 3 * kPage, 2 * kPage));
  EXPECT_THAT(rows_.row_begin, ElementsAre(0, 2, 3));
  EXPECT_THAT(rows_.context_lengths, ElementsAre(5, 9));
  EXPECT_THAT(rows_.output_rows, ElementsAre(1));
  EXPECT_EQ(rows_.pages(0)[1], 3);
  EXPECT_EQ(rows_.pages(1)[2], 2);

  // The next batch goes on where this one ended.
  SKEIN_ASSERT_OK(
      slots_.Fill({.sequences = {{.slot = 2, .rows = 3}}, .token_ids = {1, 2, 3}}, rows_));
  EXPECT_THAT(rows_.positions, ElementsAre(9, 10, 11));
  EXPECT_THAT(rows_.output_rows, IsEmpty());
}

TEST_F(SlotsTest, PagesFromSomewhereOnAreReplaced) {
  SKEIN_ASSERT_OK(
      slots_.Update({.updates = {{.slot = 2, .length = 7, .first_page = 1, .pages = {4}}}}));
  SKEIN_ASSERT_OK(slots_.Fill({.sequences = {{.slot = 2}}, .token_ids = {1}}, rows_));
  EXPECT_THAT(rows_.kv_slots, ElementsAre(4 * kPage + 3));
  EXPECT_THAT(slots_.Fill({.sequences = {{.slot = 2}}, .token_ids = {1}}, rows_),
              StatusIs(kInvalid, HasSubstr("slot 2: positions 8 to 9, and 2 pages of 4")));
}

TEST_F(SlotsTest, PositionsAreTakenBackWithTheirPages) {
  std::vector<int32_t> shortened;
  const auto update = [&](const SlotUpdate& update) {
    return slots_.Update({.updates = {update}},
                         [&](const SlotUpdate& taken) { shortened.push_back(taken.slot); });
  };
  SKEIN_ASSERT_OK(update({.slot = 2, .length = 5}));
  EXPECT_THAT(
      slots_.Fill({.sequences = {{.slot = 2, .rows = 4}}, .token_ids = {1, 2, 3, 4}}, rows_),
      StatusIs(kInvalid, HasSubstr("slot 2: positions 5 to 9, and 2 pages of 4")));
  SKEIN_ASSERT_OK(slots_.Fill({.sequences = {{.slot = 2}}, .token_ids = {1}}, rows_));
  EXPECT_THAT(rows_.kv_slots, ElementsAre(9 * kPage + 1));
  // A page's last position keeps the page; others come behind it.
  EXPECT_THAT(update({.slot = 2, .length = 4, .first_page = 2, .pages = {6}}),
              StatusIs(kInvalid, HasSubstr("slot 2: a hole before page 2; it has 1")));
  SKEIN_ASSERT_OK(update({.slot = 2, .length = 4, .first_page = 1, .pages = {6}}));
  SKEIN_ASSERT_OK(slots_.Fill({.sequences = {{.slot = 2}}, .token_ids = {1}}, rows_));
  EXPECT_THAT(rows_.kv_slots, ElementsAre(6 * kPage));
  EXPECT_THAT(shortened, ElementsAre(2, 2));
  // A length that is the slot's or longer takes nothing back.
  SKEIN_ASSERT_OK(update({.slot = 2, .length = 5}));
  SKEIN_ASSERT_OK(update({.slot = 0, .length = 8}));
  EXPECT_THAT(shortened, ElementsAre(2, 2));
  // Wrong guesses give back no pages.
  slots_.TakeBack(0, 6);
  SKEIN_ASSERT_OK(
      slots_.Fill({.sequences = {{.slot = 0, .rows = 6}}, .token_ids = {1, 2, 3, 4, 5, 6}}, rows_));
  EXPECT_EQ(rows_.positions.front(), 2);
  EXPECT_EQ(rows_.kv_slots.back(), 3 * kPage + 3);
}

TEST_F(SlotsTest, ALengthThatIsNotSaidStays) {
  SKEIN_ASSERT_OK(slots_.Update({.updates = {{.slot = 0, .first_page = 2, .pages = {8}}}}));
  SKEIN_ASSERT_OK(slots_.Fill({.sequences = {{.slot = 0}}, .token_ids = {1}}, rows_));
  EXPECT_THAT(rows_.positions, ElementsAre(3));
}

TEST_F(SlotsTest, AStartEmptiesTheSlot) {
  SKEIN_ASSERT_OK(slots_.Update({.starts = {{.slot = 2}}}));
  EXPECT_EQ(slots_.length(2), 0);
  EXPECT_THAT(slots_.Fill({.sequences = {{.slot = 2}}, .token_ids = {1}}, rows_),
              StatusIs(kInvalid, HasSubstr("positions 0 to 1, and 0 pages")));
  EXPECT_THAT(slots_.Update({.updates = {{.slot = 2, .first_page = 1, .pages = {4}}}}),
              StatusIs(kInvalid, HasSubstr("slot 2: a hole before page 1; it has 0")));
}

TEST_F(SlotsTest, ASlotStandsInABatchOnce) {
  EXPECT_THAT(
      slots_.Fill({.sequences = {{.slot = 0}, {.slot = 2}, {.slot = 0}}, .token_ids = {1, 2, 3}},
                  rows_),
      StatusIs(kInvalid, HasSubstr("slot 0 stands in a batch twice")));
}

// Pages are shared to be read alone.
TEST_F(SlotsTest, APageIsWrittenByOneSequenceOfABatch) {
  SKEIN_ASSERT_OK(slots_.Update({.updates = {{.slot = 1, .length = 4, .pages = {5, 3}}}}));
  const Batch batch = {.sequences = {{.slot = 0, .rows = 2}, {.slot = 1}}, .token_ids = {1, 2, 3}};
  EXPECT_THAT(slots_.Fill(batch, rows_),
              StatusIs(kInvalid, HasSubstr("slot 1 writes to page 3, to which")));
  // One after the other they may, and one may share what it reads.
  SlotStates slots(kLimits, kPage);
  SKEIN_ASSERT_OK(slots.Update({.updates = {{.slot = 0, .length = 4, .pages = {5, 3}},
                                            {.slot = 1, .length = 4, .pages = {5, 6}}}}));
  SKEIN_ASSERT_OK(slots.Fill(
      {.sequences = {{.slot = 0, .rows = 2}, {.slot = 1}}, .token_ids = {1, 2, 3}}, rows_));
  SKEIN_ASSERT_OK(slots.Update({.updates = {{.slot = 1, .first_page = 1, .pages = {3}}}}));
  SKEIN_ASSERT_OK(slots.Fill({.sequences = {{.slot = 1}}, .token_ids = {4}}, rows_));
}

TEST_F(SlotsTest, WithoutACacheThereAreNoPages) {
  SlotStates slots(kLimits, 0);
  SKEIN_ASSERT_OK(slots.Fill({.sequences = {{.slot = 1, .rows = 2}}, .token_ids = {1, 2}}, rows_));
  EXPECT_THAT(rows_.positions, ElementsAre(0, 1));
  EXPECT_THAT(rows_.kv_slots, IsEmpty());
}

}  // namespace
}  // namespace skein::kernels

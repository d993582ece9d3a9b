#include "parallel/attach/protocol.h"

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::attach {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<int32_t> Agree(ProtocolRange rank, ProtocolRange coordinator) {
  return AgreeOnProtocol({.name = "rank 3", .version = "0.2.0", .protocols = rank},
                         {.name = "the coordinator", .version = "0.9.1", .protocols = coordinator});
}

TEST(ProtocolTest, TheHighestThatBothSpeak) {
  const struct {
    ProtocolRange rank, coordinator;
    int32_t want;
  } kCases[] = {{{1, 1}, {1, 1}, 1}, {{1, 2}, {2, 3}, 2}, {{2, 3}, {1, 2}, 2},
                {{1, 5}, {2, 3}, 3}, {{2, 3}, {1, 5}, 3}, {{4, 4}, {4, 9}, 4}};
  for (const auto& c : kCases) {
    const absl::StatusOr<int32_t> got = Agree(c.rank, c.coordinator);
    SKEIN_ASSERT_OK(got);
    EXPECT_EQ(*got, c.want) << c.rank.min << c.rank.max << c.coordinator.min << c.coordinator.max;
  }
}

TEST(ProtocolTest, NoneInCommonIsRefusedByName) {
  EXPECT_THAT(
      Agree({1, 2}, {3, 4}),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("rank 3 (Skein 0.2.0) speaks versions 1 to 2 of the protocol"),
                     HasSubstr("the coordinator (Skein 0.9.1) speaks versions 3 to 4"),
                     HasSubstr("start the job's workers from a newer Skein, of the other's"))));
  EXPECT_THAT(Agree({5, 5}, {3, 4}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rank 3 (Skein 0.2.0) speaks version 5 of the protocol"),
                             HasSubstr("start the coordinator from a newer Skein"))));
}

// What is not told, or senseless, agrees with nothing.
TEST(ProtocolTest, NothingToldIsNoVersion) {
  for (const ProtocolRange none : {ProtocolRange{0, 0}, {-1, 0}, {3, 2}, {-5, -3}}) {
    EXPECT_THAT(Agree(none, {1, 4}), Not(IsOk())) << none.min << " " << none.max;
    EXPECT_THAT(Agree({1, 4}, none), Not(IsOk())) << none.min << " " << none.max;
  }
  EXPECT_THAT(Agree({}, {1, 4}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("rank 3 (Skein 0.2.0) tells of no version of the protocol")));
}

}  // namespace
}  // namespace skein::attach

#include "kernels/host/masks.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Status Nothing() { return absl::OkStatus(); }

TEST(TokenMasksTest, AMaskIsTheBatchsAndTheSlots) {
  TokenMasks masks(2);
  masks.Set(0, 1, std::vector<uint32_t>{5, 6});
  masks.Set(1, 1, std::vector<uint32_t>{7});
  SKEIN_ASSERT_OK_AND_ASSIGN(auto bits, masks.Await(0, 1, Nothing));
  EXPECT_THAT(bits, ElementsAre(5, 6));
  SKEIN_ASSERT_OK_AND_ASSIGN(bits, masks.Await(1, 1, Nothing));
  EXPECT_THAT(bits, ElementsAre(7));
}

// Draws may be reading the first mask.
TEST(TokenMasksTest, ASecondMaskOfABatchFailsItAndALaterBatchsDoesNot) {
  TokenMasks masks(2);
  masks.Set(0, 1, std::vector<uint32_t>{5});
  masks.Clear(0);
  masks.Set(0, 1, std::vector<uint32_t>{6});
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto bits, masks.Await(0, 1, Nothing));
  EXPECT_THAT(bits, ElementsAre(6));
  masks.Set(0, 1, std::vector<uint32_t>{8});
  EXPECT_THAT(bits, ElementsAre(6));
  EXPECT_THAT(masks.Await(0, 1, Nothing).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("second mask for slot 1")));
}

}  // namespace
}  // namespace skein::kernels

#include "base/port_range.h"

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein {
namespace {

TEST(PortRangeTest, RangesAreParsed) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const PortRange range, ParsePortRange("2000-2001"));
  EXPECT_EQ(range.first, 2000);
  EXPECT_EQ(range.last, 2001);
  EXPECT_EQ(range.size(), 2);
  SKEIN_EXPECT_OK(ParsePortRange("2000-2000").status());
  for (const char* text :
       {"", "2000", "2001-2000", "80-2000", "2000-65536", "2000-2001-2", "a-b"}) {
    EXPECT_THAT(ParsePortRange(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                               testing::HasSubstr("must be FIRST-LAST, from 1024")))
        << text;
  }
}

}  // namespace
}  // namespace skein

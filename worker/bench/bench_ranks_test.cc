// Which layouts a benchmark takes.
#include "worker/bench/bench_ranks.h"

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::worker {
namespace {

using ::testing::HasSubstr;

TEST(LayoutOfBench, IsThatOfAllRanks) {
  EXPECT_EQ(*LayoutOfBench({}, 1), (plan::Layout{1, 1, 1}));
  EXPECT_EQ(*LayoutOfBench({}, 4), (plan::Layout{4, 1, 1}));
  EXPECT_EQ(*LayoutOfBench({.pp_size = 2}, 2), (plan::Layout{1, 2, 1}));
  EXPECT_EQ(*LayoutOfBench({.pp_size = 2}, 4), (plan::Layout{2, 2, 1}));
  EXPECT_EQ(*LayoutOfBench({.tp_size = 2, .pp_size = 3}, 6), (plan::Layout{2, 3, 1}));
  EXPECT_EQ(*LayoutOfBench({.dp_size = 2}, 4), (plan::Layout{2, 1, 2}));
  EXPECT_EQ(*LayoutOfBench({.pp_size = 2, .dp_size = 2}, 8), (plan::Layout{2, 2, 2}));
  for (const auto& [asked, ranks] : {std::pair{plan::LayoutRequest{.tp_size = 2}, 1},
                                     {plan::LayoutRequest{.tp_size = 2}, 4},
                                     {plan::LayoutRequest{.dp_size = 3}, 2},
                                     {plan::LayoutRequest{.pp_size = 3}, 2},
                                     {plan::LayoutRequest{.pp_size = 2}, 3}}) {
    EXPECT_THAT(LayoutOfBench(asked, ranks),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--layout: tp=")))
        << asked.ToString() << " of " << ranks;
  }
}

}  // namespace
}  // namespace skein::worker

#include "coordinator/cluster/picture.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(PictureTest, RanksStandWhereTheyRun) {
  topology::Machine machine;
  machine.nodes = {{.host = "<i>one</i>", .cores = 4, .memory_bytes = int64_t{1} << 30},
                   {.host = "two", .cores = 4, .memory_bytes = int64_t{1} << 30}};
  machine.devices = {{.node = 0}, {.node = 1}, {.node = 1}};
  plan::Plan plan = {.model_name = "bard&co", .layout = {.tp_size = 1, .pp_size = 1, .dp_size = 2}};
  plan.ranks = {{.rank = 0, .dp_rank = 0}, {.rank = 1, .dp_rank = 1}};
  plan.idle_ranks = {2};
  const std::string svg = PictureOf(machine, plan);
  EXPECT_THAT(svg, AllOf(StartsWith("<svg "), HasSubstr("rank 0"), HasSubstr("rank 1"),
                         HasSubstr("bard&amp;co, tp=1,pp=1,dp=2"), HasSubstr("two")));
  EXPECT_THAT(svg,
              AllOf(HasSubstr("&lt;i&gt;one"), Not(HasSubstr("<i>")), Not(HasSubstr("rank 2"))));
}

// The second rank of a host computes on its second GPU.
TEST(PictureTest, GpusAreThoseOfTheirRanks) {
  topology::Machine machine;
  machine.nodes = {{.host = "one", .cores = 4, .memory_bytes = int64_t{1} << 30}};
  machine.devices = {{.kind = DeviceKind::kCuda, .name = "NVIDIA H200"},
                     {.kind = DeviceKind::kCuda, .name = "NVIDIA H200"}};
  plan::Plan plan = {.layout = {.tp_size = 1, .pp_size = 1, .dp_size = 1}};
  plan.ranks = {{.rank = 1, .dp_rank = 0}};
  const std::string svg = PictureOf(machine, plan);
  EXPECT_THAT(svg, AllOf(HasSubstr("GPU0"), HasSubstr("GPU1")));
  EXPECT_GT(svg.find("rank 1"), svg.find("GPU1"));
  plan.ranks[0].rank = 0;
  const std::string first = PictureOf(machine, plan);
  EXPECT_LT(first.find("rank 0"), first.find("GPU1"));
}

}  // namespace
}  // namespace skein::coordinator

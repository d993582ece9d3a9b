#include "topology/host/cores.h"

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::topology {
namespace {

// What `of` says of the hardware threads `cpus` of a machine in hwloc's synthetic form.
template <typename Of>
auto OfSynthetic(const char* machine, const char* cpus, Of of) {
  hwloc_topology_t topology = nullptr;
  EXPECT_EQ(hwloc_topology_init(&topology), 0);
  EXPECT_EQ(hwloc_topology_set_synthetic(topology, machine), 0);
  EXPECT_EQ(hwloc_topology_load(topology), 0);
  hwloc_bitmap_t set = hwloc_bitmap_alloc();
  EXPECT_EQ(hwloc_bitmap_list_sscanf(set, cpus), 0);
  const auto result = of(topology, set);
  hwloc_bitmap_free(set);
  hwloc_topology_destroy(topology);
  return result;
}
int32_t CoresOfSynthetic(const char* machine, const char* cpus) {
  return OfSynthetic(machine, cpus, CoresOf);
}
int64_t CacheBytesOfSynthetic(const char* machine, const char* cpus) {
  return OfSynthetic(machine, cpus, CacheBytesOf);
}

TEST(CoresOfTest, HardwareThreadsOfACoreCountOnce) {
  EXPECT_EQ(CoresOfSynthetic("core:4 pu:1", "0-3"), 4);
  EXPECT_EQ(CoresOfSynthetic("core:4 pu:2", "0-7"), 4);
  EXPECT_EQ(CoresOfSynthetic("core:4 pu:2", "0-1"), 1);
  EXPECT_EQ(CoresOfSynthetic("core:4 pu:2", "1,2"), 2);
  EXPECT_EQ(CoresOfSynthetic("package:2 core:2 pu:2", "3-6"), 3);
  EXPECT_EQ(CoresOfSynthetic("pu:6", "1-3"), 3);  // no cores are told of
}

TEST(CacheBytesOfTest, EachCacheOfTheProcessorsCountsOnce) {
  constexpr char kMachine[] = "package:2 l3:2(size=4000000) core:2 pu:2";  // four of four
  EXPECT_EQ(CacheBytesOfSynthetic(kMachine, "0-15"), 16000000);
  EXPECT_EQ(CacheBytesOfSynthetic(kMachine, "0-3"), 4000000);
  EXPECT_EQ(CacheBytesOfSynthetic(kMachine, "3,4"), 8000000);
  EXPECT_EQ(CacheBytesOfSynthetic(kMachine, "9"), 4000000);
  EXPECT_EQ(CacheBytesOfSynthetic("core:4 pu:2", "0-7"), 0);
}

TEST(AffinityCoresTest, FollowsTheThreadsAffinity) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const int32_t all, AffinityCores());
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(all, 1);
  EXPECT_LE(all, CPU_COUNT(&before));
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<Cpus> cores, AffinityCpus());
  EXPECT_EQ(cores.size(), static_cast<size_t>(all));
  int cpus = 0;
  for (const Cpus& core : cores) {
    for (const int cpu : core) cpus += CPU_ISSET(cpu, &before) ? 1 : 1000;
  }
  EXPECT_EQ(cpus, CPU_COUNT(&before));
  EXPECT_EQ(CoresOfThreads(all), cores);
  EXPECT_THAT(CoresOfThreads(all + 1), testing::IsEmpty());
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  SKEIN_ASSERT_OK_AND_ASSIGN(const int32_t alone, AffinityCores());
  EXPECT_EQ(alone, 1);
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<Cpus> bound, AffinityCpus());
  EXPECT_EQ(bound, (std::vector<Cpus>{{first}}));
  EXPECT_EQ(CoresOfThreads(1), bound);
  EXPECT_THAT(CoresOfThreads(all + 1), testing::IsEmpty());
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace skein::topology

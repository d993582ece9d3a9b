#include "topology/host/cores.h"

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "gtest/gtest.h"

namespace skein::topology {
namespace {

// Cores of the hardware threads `cpus` of a machine in hwloc's synthetic form.
int32_t CoresOfSynthetic(const char* machine, const char* cpus) {
  hwloc_topology_t topology = nullptr;
  EXPECT_EQ(hwloc_topology_init(&topology), 0);
  EXPECT_EQ(hwloc_topology_set_synthetic(topology, machine), 0);
  EXPECT_EQ(hwloc_topology_load(topology), 0);
  hwloc_bitmap_t set = hwloc_bitmap_alloc();
  EXPECT_EQ(hwloc_bitmap_list_sscanf(set, cpus), 0);
  const int32_t cores = CoresOf(topology, set);
  hwloc_bitmap_free(set);
  hwloc_topology_destroy(topology);
  return cores;
}

TEST(CoresOfTest, HardwareThreadsOfACoreCountOnce) {
  EXPECT_EQ(CoresOfSynthetic("core:4 pu:1", "0-3"), 4);
  EXPECT_EQ(CoresOfSynthetic("core:4 pu:2", "0-7"), 4);
  EXPECT_EQ(CoresOfSynthetic("core:4 pu:2", "0-1"), 1);
  EXPECT_EQ(CoresOfSynthetic("core:4 pu:2", "1,2"), 2);
  EXPECT_EQ(CoresOfSynthetic("package:2 core:2 pu:2", "3-6"), 3);
  EXPECT_EQ(CoresOfSynthetic("pu:6", "1-3"), 3);  // no cores are told of
}

// Of the processors in `set`, as the kernel tells it; each cache once.
int64_t CacheBytesOf(const cpu_set_t& set) {
  std::set<std::string> seen;
  int64_t bytes = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    const std::string folder = absl::StrCat("/sys/devices/system/cpu/cpu", cpu, "/cache/index3/");
    std::string shared_by;
    int64_t kib = 0;
    if (!(std::ifstream(folder + "shared_cpu_list") >> shared_by)) continue;
    if (!(std::ifstream(folder + "size") >> kib) || !seen.insert(shared_by).second) continue;
    bytes += kib << 10;
  }
  return bytes;
}

TEST(AffinityCacheBytesTest, AreOfTheCoresThatMayBeUsed) {
  cpu_set_t before, first;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  SKEIN_ASSERT_OK_AND_ASSIGN(const int64_t all, AffinityCacheBytes());
  EXPECT_EQ(all, CacheBytesOf(before));
  int cpu = 0;
  while (!CPU_ISSET(cpu, &before)) ++cpu;
  CPU_ZERO(&first);
  CPU_SET(cpu, &first);
  ASSERT_EQ(sched_setaffinity(0, sizeof(first), &first), 0);
  SKEIN_ASSERT_OK_AND_ASSIGN(const int64_t alone, AffinityCacheBytes());
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(alone, CacheBytesOf(first));
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
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace skein::topology

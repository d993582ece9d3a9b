// Against hwloc itself: what it writes, and what it makes of the machine of the other tests.
#include <hwloc.h>
#include <hwloc/distances.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_replace.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/cpus.h"
#include "topology/formats/hwloc_machine.h"
#include "topology/formats/hwloc_xml.h"

namespace skein::topology {
namespace {

absl::Status Check(Host host) {
  if (host.name.empty()) host.name = "unnamed";
  return CheckTopology({.hosts = {std::move(host)}});
}

using Hwloc = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

Hwloc Load(const char* synthetic, const std::string* xml) {
  hwloc_topology_t topology = nullptr;
  EXPECT_EQ(hwloc_topology_init(&topology), 0);
  EXPECT_EQ(hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL), 0);
  if (synthetic != nullptr) EXPECT_EQ(hwloc_topology_set_synthetic(topology, synthetic), 0);
  if (xml != nullptr) {
    EXPECT_EQ(
        hwloc_topology_set_xmlbuffer(topology, xml->c_str(), static_cast<int>(xml->size()) + 1), 0);
  }
  EXPECT_EQ(hwloc_topology_load(topology), 0);
  return Hwloc(topology, hwloc_topology_destroy);
}

std::string Export(const Hwloc& topology) {
  char* buffer = nullptr;
  int bytes = 0;
  EXPECT_EQ(hwloc_topology_export_xmlbuffer(topology.get(), &buffer, &bytes, 0), 0);
  std::string text(buffer, bytes - 1);
  hwloc_free_xmlbuffer(topology.get(), buffer);
  return text;
}

void ExpectAsHwlocCounts(const Host& host, const Hwloc& topology) {
  const auto count = [&](hwloc_obj_type_t type) {
    return hwloc_get_nbobjs_by_type(topology.get(), type);
  };
  EXPECT_EQ(host.sockets, count(HWLOC_OBJ_PACKAGE));
  EXPECT_EQ(host.cores, count(HWLOC_OBJ_CORE));
  EXPECT_EQ(host.memory_bytes, hwloc_get_root_obj(topology.get())->total_memory);
  int64_t l3 = 0;
  for (int i = 0; i < count(HWLOC_OBJ_L3CACHE); ++i) {
    l3 += hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_L3CACHE, i)->attr->cache.size;
  }
  EXPECT_EQ(host.l3_bytes, l3);
  ASSERT_EQ(static_cast<int>(host.numa_nodes.size()), count(HWLOC_OBJ_NUMANODE));
  for (size_t i = 0; i < host.numa_nodes.size(); ++i) {
    const hwloc_obj_t node = hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, i);
    EXPECT_EQ(host.numa_nodes[i].memory_bytes, node->attr->numanode.local_memory);
    char list[4096];
    hwloc_bitmap_list_snprintf(list, sizeof(list), node->cpuset);
    EXPECT_EQ(FormatCpus(host.numa_nodes[i].cpus), list);
  }
}

TEST(HwlocXmlTest, ReadsWhatHwlocWrites) {
  for (const char* synthetic :
       {"pack:2 numa:1 l3:1 l2:4 core:1 pu:2", "pack:2 numa:2 l3:2 l2:8 core:2 pu:1",
        "numa:1 core:1 pu:1", "pack:4 numa:1 l3:16 l2:1 core:8 pu:2"}) {
    SCOPED_TRACE(synthetic);
    const Hwloc topology = Load(synthetic, nullptr);
    SKEIN_ASSERT_OK_AND_ASSIGN(const Host host, ParseHwlocXml(Export(topology)));
    ExpectAsHwlocCounts(host, topology);
    SKEIN_EXPECT_OK(Check(host));
  }
}

TEST(HwlocXmlTest, ReadsThisHost) {
  const Hwloc topology = Load(nullptr, nullptr);
  const std::string text = Export(topology);
  SKEIN_ASSERT_OK_AND_ASSIGN(const Host host, ParseHwlocXml(text, {.nvlinks = 0}));
  EXPECT_EQ(host.sockets, hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_PACKAGE));
  EXPECT_GT(host.cores, 0);
  EXPECT_EQ(host.memory_bytes, hwloc_get_root_obj(topology.get())->total_memory);
  SKEIN_EXPECT_OK(Check(host));
}

// The machine of these tests is one to hwloc, which writes it in its own words.
TEST(HwlocXmlTest, ReadsTheSameAsHwloc) {
  // Its parser without libxml knows no other quotes.
  const std::string text = absl::StrReplaceAll(HwlocMachine(kHwlocMatrix), {{"'", "\""}});
  const Hwloc topology = Load(nullptr, &text);
  SKEIN_ASSERT_OK_AND_ASSIGN(const Host host, ParseHwlocXml(text));
  ExpectAsHwlocCounts(host, topology);
  const std::string written = Export(topology);
  EXPECT_NE(written, text);
  SKEIN_ASSERT_OK_AND_ASSIGN(const Host again, ParseHwlocXml(written));
  EXPECT_EQ(host, again);
  // hwloc's own count of links.
  unsigned matrices = 1;
  hwloc_distances_s* distances = nullptr;
  ASSERT_EQ(
      hwloc_distances_get_by_name(topology.get(), "NVLinkBandwidth", &matrices, &distances, 0), 0);
  ASSERT_EQ(matrices, 1u);
  ASSERT_EQ(hwloc_distances_transform(topology.get(), distances, HWLOC_DISTANCES_TRANSFORM_LINKS,
                                      nullptr, 0),
            0);
  ASSERT_EQ(distances->nbobjs, 4u);
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      // By its least bandwidth, which here is of two links.
      EXPECT_EQ(host.interconnect.OfGpus(i, j).nvlinks, 2 * distances->values[i * 4 + j]);
    }
  }
  hwloc_distances_release(topology.get(), distances);
}

}  // namespace
}  // namespace skein::topology

#include "topology/host/detect.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/host/fake_sys.h"
#include "topology/host/planted_nvml.h"
#include "topology/topology.h"

namespace skein::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two sockets of eight cores with two hardware threads each.
constexpr char kTwoSockets[] =
    "package:2 [numa(memory=64000000000)] l3:2(size=32000000) l2:4(size=1000000) core:1 pu:2";

// Two switches, each with two GPUs and a NIC, on two sockets; a fifth GPU at a port of its own.
class DetectTest : public ::testing::Test {
 protected:
  DetectTest() : nvml_(5) {
    const std::string left = "pci0000:15/0000:15:01.0/0000:16:00.0/";
    const std::string right = "pci0000:97/0000:97:01.0/0000:98:00.0/";
    sys_.Pci(left + "0000:17:00.0/0000:18:00.0", "0\n", "0-15\n");
    sys_.Pci(left + "0000:17:01.0/0000:19:00.0", "0\n", "0-15\n");
    sys_.Pci(right + "0000:99:00.0/0000:9a:00.0", "1\n", "16-31\n");
    sys_.Pci(right + "0000:99:01.0/0000:9b:00.0", "1\n", "16-31\n");
    sys_.Pci("pci0000:97/0000:97:02.0/0000:c0:00.0", "1\n", "16-31\n");
    const char* const bus_ids[] = {"00000000:18:00.0", "00000000:19:00.0", "00000000:9A:00.0",
                                   "00000000:9B:00.0", "00000000:C0:00.0"};
    for (int i = 0; i < 5; ++i) nvml_[i].bus_id = bus_ids[i];
    const std::string near_left = left + "0000:17:02.0/0000:1a:00.0";
    const std::string near_right = right + "0000:99:02.0/0000:9c:00.0/0000:9d:00.0/0000:9e:00.0";
    sys_.Pci(near_left, "0\n");
    sys_.Pci(near_right, "1\n");
    sys_.Rdma("mlx5_0", near_left, "400 Gb/sec (4X NDR)\n", "InfiniBand\n", "4: ACTIVE\n");
    sys_.Rdma("mlx5_1", near_right, "400 Gb/sec (4X NDR)\n", "InfiniBand\n", "4: ACTIVE\n");
    sys_.Pci("pci0000:00/0000:00:1c.0/0000:01:00.0", "0\n");
    sys_.Net("eno1", "pci0000:00/0000:00:1c.0/0000:01:00.0", "10000\n");
  }

  DetectOptions Options() const {
    return {.root = sys_.root(),
            .synthetic_processors = kTwoSockets,
            .nvml_libraries = {PlantedNvml::Path()}};
  }
  static DetectedHost Detect(const DetectOptions& options) {
    absl::StatusOr<DetectedHost> detected = DetectHostAndHealth(options);
    SKEIN_EXPECT_OK(detected);
    if (!detected.ok()) return {};
    SKEIN_EXPECT_OK(CheckTopology({.hosts = {detected->host}}));
    EXPECT_EQ(detected->health.size(), detected->host.interconnect.gpus.size());
    return *std::move(detected);
  }
  // A row for each device, as nvidia-smi prints it.
  static std::vector<std::string> Rows(const Host& host) {
    std::vector<std::string> rows;
    for (const auto& row : host.interconnect.connections) {
      rows.emplace_back();
      for (const Connection& connection : row) {
        absl::StrAppend(&rows.back(), rows.back().empty() ? "" : " ", ToString(connection));
      }
    }
    return rows;
  }

  FakeSys sys_;
  PlantedNvml nvml_;
};

TEST_F(DetectTest, FindsProcessorsAndMemory) {
  sys_.Write("/proc/cpuinfo", "processor : 0\nmodel name : Fake EPYC\n");
  const Host host = Detect(Options()).host;
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  EXPECT_EQ(host.name, name);
  EXPECT_EQ(host.cpu, "Fake EPYC");
  EXPECT_EQ(host.sockets, 2);
  EXPECT_GE(host.cores, 1);
  EXPECT_EQ(host.memory_bytes, int64_t{10} << 20);
  EXPECT_EQ(host.l2_bytes, 1000000);
  EXPECT_EQ(host.l3_bytes, 4 * 32000000);
  ASSERT_EQ(host.numa_nodes.size(), 2u);
  EXPECT_EQ(FormatCpus(host.numa_nodes[0].cpus), "0-15");
  EXPECT_EQ(FormatCpus(host.numa_nodes[1].cpus), "16-31");
  EXPECT_EQ(host.numa_nodes[1].memory_bytes, 64000000000);
  struct statvfs shm;
  ASSERT_EQ(statvfs((sys_.root() + "/dev/shm").c_str(), &shm), 0);
  const auto free = static_cast<double>(shm.f_bavail) * static_cast<double>(shm.f_frsize);
  EXPECT_NEAR(static_cast<double>(host.shm_bytes), free, 0.05 * free);
  // Four cores share an L2; node 1 is missing.
  DetectOptions odd = Options();
  odd.synthetic_processors = "numa:2(indexes=0,2) l2:1(size=4000000) core:4 pu:1";
  const Host other = Detect(odd).host;
  EXPECT_EQ(other.l2_bytes, 1000000);
  EXPECT_EQ(other.l3_bytes, 0);
  ASSERT_EQ(other.numa_nodes.size(), 3u);
  EXPECT_EQ(other.numa_nodes[1], NumaNode());
  EXPECT_EQ(FormatCpus(other.numa_nodes[2].cpus), "4-7");
  odd.synthetic_processors = "no processors";
  EXPECT_THAT(DetectHost(odd), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("hwloc")));
}

TEST_F(DetectTest, FindsWhatLiesBetweenGpusAndNics) {
  const Host host = Detect(Options()).host;
  EXPECT_THAT(Rows(host), ElementsAre("X PIX SYS SYS SYS PIX SYS NODE",      // GPU0
                                      "PIX X SYS SYS SYS PIX SYS NODE",      // GPU1
                                      "SYS SYS X PIX PHB SYS PXB SYS",       // GPU2
                                      "SYS SYS PIX X PHB SYS PXB SYS",       // GPU3
                                      "SYS SYS PHB PHB X SYS PHB SYS",       // GPU4
                                      "PIX PIX SYS SYS SYS X SYS NODE",      // mlx5_0
                                      "SYS SYS PXB PXB PHB SYS X SYS",       // mlx5_1
                                      "NODE NODE SYS SYS SYS NODE SYS X"));  // eno1
  const Interconnect& all = host.interconnect;
  ASSERT_EQ(all.gpus.size(), 5u);
  EXPECT_EQ(all.gpus[2].bus_id, "0000:9a:00.0");
  EXPECT_EQ(all.gpus[2].numa_node, 1);
  EXPECT_EQ(FormatCpus(all.gpus[2].cpus), "16-31");
  ASSERT_EQ(all.nics.size(), 3u);
  EXPECT_EQ(all.nics[1].device, "mlx5_1");
  EXPECT_THAT(NearestNics(all, 0), ElementsAre(0));
  EXPECT_THAT(NearestNics(all, 3), ElementsAre(1));
  SKEIN_ASSERT_OK_AND_ASSIGN(Host again, DetectHost(Options()));
  again.shm_bytes = host.shm_bytes;  // free bytes, of which others may take some meanwhile
  EXPECT_EQ(again, host);
}

TEST_F(DetectTest, NvlinksAreNearerThanPcie) {
  for (int gpu = 0; gpu < 4; ++gpu) nvml_.Connect(gpu, "00000000:C1:00.0", 6, /*to_switch=*/true);
  nvml_[1].reasons = 0x80;
  DetectedHost found = Detect(Options());
  EXPECT_EQ(Rows(found.host)[0], "X NV6 NV6 NV6 SYS PIX SYS NODE");
  EXPECT_EQ(Rows(found.host)[2], "NV6 NV6 X NV6 PHB SYS PXB SYS");
  EXPECT_EQ(found.host.interconnect.nvswitches, 1);
  EXPECT_THAT(found.health[1].slowed_by, ElementsAre("the power brake"));
  DetectOptions some = Options();
  some.visible_devices = "4,2,1";
  found = Detect(some);
  EXPECT_EQ(Rows(found.host)[0], "X PHB SYS SYS PHB SYS");
  EXPECT_EQ(Rows(found.host)[1], "PHB X NV6 SYS PXB SYS");
  EXPECT_EQ(found.host.interconnect.gpus[1].name, "GPU1");
  EXPECT_EQ(found.host.interconnect.gpus[1].numa_node, 1);
  EXPECT_THAT(found.health[2].slowed_by, ElementsAre("the power brake"));
  some.visible_devices = "";
  EXPECT_EQ(Detect(some).host.interconnect.gpus.size(), 0u);
  EXPECT_EQ(Rows(Detect(some).host)[0], "X SYS NODE");
}

TEST_F(DetectTest, WhereSysIsHiddenNvmlTells) {
  std::filesystem::remove_all(sys_.root() + "/sys");
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 5; ++j) nvml_[i].ancestor[j] = i / 2 == j / 2 ? 10 : 40;
  }
  const Host host = Detect(Options()).host;
  EXPECT_EQ(Rows(host)[0], "X PIX NODE NODE NODE");
  EXPECT_EQ(host.interconnect.gpus[0].numa_node, -1);
  EXPECT_THAT(host.interconnect.gpus[0].cpus, IsEmpty());
}

TEST_F(DetectTest, OneNumaNodeHoldsAll) {
  for (const char* const gpu : {"0000:18:00.0", "0000:9a:00.0"}) {
    sys_.Write(absl::StrCat("/sys/bus/pci/devices/", gpu, "/numa_node"), "-1\n");
  }
  sys_.Write("/sys/bus/pci/devices/0000:9b:00.0/numa_node", "7\n");
  DetectOptions options = Options();
  Host host = Detect(options).host;
  EXPECT_EQ(host.interconnect.gpus[0].numa_node, -1);
  EXPECT_EQ(host.interconnect.gpus[3].numa_node, -1);  // there is no node 7
  EXPECT_EQ(host.interconnect.OfGpus(0, 2).path, Path::kSystem);
  options.synthetic_processors = "numa:1 core:4 pu:1";
  host = Detect(options).host;
  EXPECT_EQ(host.interconnect.gpus[0].numa_node, 0);
  EXPECT_EQ(host.interconnect.gpus[3].numa_node, 0);
  EXPECT_EQ(host.interconnect.OfGpus(0, 2).path, Path::kNode);
}

TEST_F(DetectTest, ADriverThatFailsIsQuoted) {
  nvml_->init_code = 9;
  nvml_.failed_inits = 1;
  EXPECT_THAT(DetectHost(Options()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("Driver Not Loaded")));
}

// Whatever becomes of a file, there is a host or an error.
TEST_F(DetectTest, GarbledFilesAreTolerated) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(sys_.root())) {
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  }
  ASSERT_GT(files.size(), 15u);
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    const bool memory = file.find("meminfo") != std::string::npos;
    std::ifstream before(file);
    const std::string text{std::istreambuf_iterator<char>(before), {}};
    for (const char* const garbled :
         {"", "\n", "-2147483649", "99999999999999999999", "\xff\x01:,"}) {
      std::ofstream(file, std::ios::trunc) << garbled;
      if (memory) {
        EXPECT_THAT(DetectHost(Options()),
                    StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("MemAvailable")));
      } else {
        Detect(Options());
      }
    }
    std::filesystem::remove(file);
    if (!memory) Detect(Options());
    std::ofstream(file) << text;
  }
}

TEST_F(DetectTest, AnEmptyRootHasNoDevices) {
  std::filesystem::remove_all(sys_.root() + "/sys");
  std::filesystem::remove_all(sys_.root() + "/dev");
  DetectOptions options = Options();
  options.nvml_libraries = {"libskein_absent.so.1"};
  const Host host = Detect(options).host;
  EXPECT_EQ(host.shm_bytes, 0);
  EXPECT_EQ(host.cpu, "CPU");
  EXPECT_EQ(host.interconnect, Interconnect());
}

// The machine that the test is on, beside what the kernel's files say.
TEST(DetectHostTest, FindsThisHost) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Host host, DetectHost({.visible_devices = ""}));
  SKEIN_EXPECT_OK(CheckTopology({.hosts = {host}}));
  EXPECT_GE(host.cores, 1);
  EXPECT_GT(host.memory_bytes, 0);
  EXPECT_FALSE(host.cpu.empty());
  std::set<std::string> sockets;
  size_t numa_nodes = 0;
  std::error_code missing;
  for (const auto& cpu : std::filesystem::directory_iterator("/sys/devices/system/cpu", missing)) {
    std::ifstream file(cpu.path() / "topology/physical_package_id");
    std::string socket;
    if (file >> socket) sockets.insert(socket);
  }
  for (const auto& node :
       std::filesystem::directory_iterator("/sys/devices/system/node", missing)) {
    std::string list;
    std::ifstream(node.path() / "cpulist") >> list;
    int number = -1;
    if (std::sscanf(node.path().filename().c_str(), "node%d", &number) != 1) continue;
    ++numa_nodes;
    ASSERT_LT(number, static_cast<int>(host.numa_nodes.size()));
    EXPECT_EQ(FormatCpus(host.numa_nodes[number].cpus), list);
    EXPECT_GT(host.numa_nodes[number].memory_bytes, 0);
  }
  if (!sockets.empty()) EXPECT_EQ(host.sockets, static_cast<int>(sockets.size()));
  if (numa_nodes > 0) EXPECT_GE(host.numa_nodes.size(), numa_nodes);
  for (const Nic& nic : host.interconnect.nics) {
    EXPECT_TRUE(std::filesystem::exists("/sys/class/net/" + nic.device) ||
                std::filesystem::exists("/sys/class/infiniband/" + nic.device))
        << nic.device;
  }
  EXPECT_EQ(host.shm_bytes > 0, std::filesystem::exists("/dev/shm"));
}

}  // namespace
}  // namespace skein::topology

#include "worker/doctor/gather.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/listening_socket.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/doctor/diagnose.h"
#include "topology/doctor/facts.h"
#include "topology/host/fake_sys.h"
#include "topology/host/planted_nvml.h"

namespace skein::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using topology::RankFacts;

GatherOptions NoGpus() { return {.detect = {.visible_devices = ""}}; }

// What the doctor says of ranks, as their facts reach it.
std::string Diagnosed(const std::vector<RankFacts>& ranks) {
  const auto told = topology::FactsFromJson(topology::FactsToJson(ranks));
  SKEIN_EXPECT_OK(told.status());
  return topology::FormatFindings(topology::Diagnose(*told));
}

TEST(GatherTest, LimitsAreThoseOfTheProcess) {
  const RankFacts before = GatherFacts(NoGpus());
  for (const auto& [resource, facts] : {std::pair(RLIMIT_NOFILE, &RankFacts::open_files),
                                        {RLIMIT_MEMLOCK, &RankFacts::memlock_bytes}}) {
    rlimit limit{};
    ASSERT_EQ(getrlimit(resource, &limit), 0);
    const rlim_t soft = limit.rlim_cur;
    limit.rlim_cur = resource == RLIMIT_NOFILE ? 100 : 65536;
    ASSERT_EQ(setrlimit(resource, &limit), 0);
    RankFacts low = GatherFacts(NoGpus());
    EXPECT_EQ(low.*facts, static_cast<int64_t>(limit.rlim_cur));
    low.cards = {{.name = "mlx5_0", .rdma = true}};  // which locks memory
    EXPECT_THAT(Diagnosed({low}), resource == RLIMIT_NOFILE
                                      ? HasSubstr(": 100 at most\n")
                                      : HasSubstr(": at most 64.0 KiB may be locked"));
    limit.rlim_cur = soft;
    ASSERT_EQ(setrlimit(resource, &limit), 0);
    EXPECT_EQ(GatherFacts(NoGpus()).*facts, before.*facts);
  }
}

TEST(GatherTest, ThisHostHasANameLoopbackAndMemory) {
  const RankFacts facts = GatherFacts(NoGpus());
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  EXPECT_EQ(facts.host, name);
  EXPECT_EQ(facts.boot.size(), 36u);
  EXPECT_GT(facts.shm_bytes, 0);
  EXPECT_GE(facts.cores, 1);
  const auto loopback = std::find_if(facts.interfaces.begin(), facts.interfaces.end(),
                                     [](const auto& interface) { return interface.loopback; });
  ASSERT_NE(loopback, facts.interfaces.end());
  EXPECT_EQ(loopback->address, "127.0.0.1");
  EXPECT_EQ(loopback->prefix, 8);
  EXPECT_TRUE(loopback->up);
}

TEST(GatherTest, ACgroupsLimitIsSeen) {
  const RankFacts own = GatherFacts(NoGpus());
  EXPECT_GT(own.memory_bytes, 0);
  EXPECT_GT(own.free_bytes, 0);
  const std::string root = ::testing::TempDir() + "/limited";
  for (const auto& [path, text] :
       {std::pair("/proc/meminfo", "MemAvailable: 8388608 kB\n"),
        {"/proc/self/cgroup", "0::/job\n"},
        {"/proc/self/mountinfo", "31 23 0:28 / /cg rw - cgroup2 cgroup2 rw\n"},
        {"/cg/job/memory.max", "3221225472\n"},
        {"/cg/job/memory.current", "1073741824\n"}}) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  const RankFacts limited = GatherFacts({.detect = {.root = root, .visible_devices = ""}});
  EXPECT_EQ(limited.free_bytes, int64_t{8} << 30);
  EXPECT_EQ(limited.memory_bytes, int64_t{2} << 30);
}

TEST(GatherTest, SettingsAreThoseOfTheEnvironment) {
  EXPECT_THAT(GatherFacts(NoGpus()).settings.count("NCCL_SOCKET_IFNAME"), 0);
  setenv("NCCL_SOCKET_IFNAME", "eth7", 1);
  EXPECT_EQ(GatherFacts(NoGpus()).settings.at("NCCL_SOCKET_IFNAME"), "eth7");
  unsetenv("NCCL_SOCKET_IFNAME");
  setenv("PRTE_MCA_prte_if_include", "eth7", 1);
  EXPECT_EQ(GatherFacts(NoGpus()).settings.at("PRTE_MCA_prte_if_include"), "eth7");
  unsetenv("PRTE_MCA_prte_if_include");
  for (const char* setting :
       {"OMPI_MCA_btl", "OMPI_MCA_btl_tcp_if_exclude", "OMPI_MCA_oob_tcp_if_exclude"}) {
    setenv(setting, "eth7", 1);
    EXPECT_EQ(GatherFacts(NoGpus()).settings[setting], "eth7");
    unsetenv(setting);
  }
}

TEST(GatherTest, APortThatIsTakenIsSeen) {
  GatherOptions options = NoGpus();
  EXPECT_EQ(GatherFacts(options).port, 0);
  {
    const ListeningSocket taken;
    options.port = taken.port();
    EXPECT_EQ(GatherFacts(options).port_taken, "another program listens there");
  }
  EXPECT_EQ(GatherFacts(options).port_taken, "");
  EXPECT_EQ(GatherFacts(options).port, options.port);
}

TEST(GatherTest, ModelsAreHeldAgainstEachOther) {
  GatherOptions options = NoGpus();
  EXPECT_EQ(GatherFacts(options).model, "");
  options.model = "checkpoints/bard";
  const std::string bard = GatherFacts(options).model;
  EXPECT_EQ(bard.size(), 32u);
  const std::string copy = ::testing::TempDir() + "/copy";
  std::filesystem::copy(std::filesystem::canonical("checkpoints/bard"), copy,
                        std::filesystem::copy_options::recursive);
  options.model = copy;
  EXPECT_EQ(GatherFacts(options).model, bard);
  std::filesystem::permissions(copy + "/config.json", std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  std::ofstream(copy + "/config.json", std::ios::app) << "\n";
  const RankFacts changed = GatherFacts(options);
  EXPECT_NE(changed.model, bard);
  options.model = "checkpoints/bard";
  RankFacts one = GatherFacts(options), other = GatherFacts(options), third = changed;
  other.rank = 1;
  third.rank = 2;
  EXPECT_THAT(Diagnosed({one, other, third}), HasSubstr("error    model "));
  options.model = "/nowhere";
  const RankFacts none = GatherFacts(options);
  EXPECT_EQ(none.model, "");
  EXPECT_THAT(none.no_model, HasSubstr("/nowhere"));
}

// By an NVML that pretends, and files of a /sys that does.
TEST(GatherTest, CardsTellOfErrorsAndLanes) {
  topology::PlantedNvml nvml(2);
  nvml[1].ecc = 1;
  nvml[1].errors_since_boot = 3;
  nvml[0].max_clock = 1980;
  nvml[0].clock = 345;
  nvml[0].reasons = 0x40;  // hardware's protection from heat
  for (int gpu = 0; gpu < 2; ++gpu) nvml.Connect(gpu, "00000000:C1:00.0", 4, /*to_switch=*/true);
  nvml[1].link[2].active = 0;
  const topology::FakeSys sys;
  for (const char* bus : {"0000:10:00.0", "0000:11:00.0"}) {
    const std::string address = sys.Pci(std::string("pci0000:00/") + bus);
    sys.Write("/sys/bus/pci/devices/" + address + "/max_link_width", "16\n");
    sys.Write("/sys/bus/pci/devices/" + address + "/current_link_width",
              std::string(bus) == "0000:10:00.0" ? "8\n" : "16\n");
  }
  GatherOptions options;
  options.detect = {.root = sys.root(), .nvml_libraries = {topology::PlantedNvml::Path("nvml")}};
  const RankFacts facts = GatherFacts(options);
  ASSERT_EQ(facts.no_gpus, "");
  ASSERT_GE(facts.cards.size(), 2u);
  EXPECT_EQ(facts.cards[0].name, "GPU0");
  EXPECT_EQ(facts.cards[0].pcie_width, 8);
  EXPECT_EQ(facts.cards[0].most_pcie_width, 16);
  EXPECT_EQ(facts.cards[0].ecc_errors, 0);
  EXPECT_EQ(facts.cards[1].ecc_errors, 3);
  EXPECT_EQ(facts.cards[1].pcie_width, 16);
  EXPECT_THAT(facts.cards[0].slowed_by, ElementsAre(HasSubstr("heat")));
  EXPECT_THAT(facts.cards[1].slowed_by, IsEmpty());
  EXPECT_THAT(Diagnosed({facts}),
              AllOf(HasSubstr("GPU1 had 3 "), HasSubstr("GPU0 is slowed by heat"),
                    HasSubstr("GPU0 has 8 of 16 lanes"), HasSubstr("GPU1: 1 NVLink down")));
  EXPECT_EQ(facts.cards[0].nvlinks_down, 0);
  EXPECT_EQ(facts.cards[1].nvlinks_down, 1);
  options.cards = false;
  EXPECT_THAT(GatherFacts(options).cards, IsEmpty());
}

TEST(GatherTest, NicsTellOfTheirRateAndRdma) {
  const topology::FakeSys sys;
  sys.Rdma("mlx5_0", "pci0000:15/0000:15:01.0/0000:16:00.0", "400 Gb/sec (4X NDR)\n",
           "InfiniBand\n", "4: ACTIVE\n");
  sys.Net("ens1", "pci0000:80/0000:80:01.0/0000:81:00.0", "25000\n");
  GatherOptions options;
  options.detect = {.root = sys.root(), .nvml_libraries = {"/nowhere"}};
  const RankFacts facts = GatherFacts(options);
  ASSERT_EQ(facts.cards.size(), 2u);
  EXPECT_EQ(facts.cards[0].name, "mlx5_0");
  EXPECT_EQ(facts.cards[0].bytes_per_s, 50e9);
  EXPECT_TRUE(facts.cards[0].rdma);
  EXPECT_EQ(facts.cards[1].name, "ens1");
  EXPECT_EQ(facts.cards[1].bytes_per_s, 3.125e9);
  EXPECT_FALSE(facts.cards[1].rdma);
}

}  // namespace
}  // namespace skein::worker

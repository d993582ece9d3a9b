#include "topology/doctor/diagnose.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/doctor/facts.h"

namespace skein::topology {
namespace {

using ::testing::Each;
using ::testing::EndsWith;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Two ranks on each of two hosts with a GPU and a card, which have nothing.
std::vector<RankFacts> Healthy() {
  std::vector<RankFacts> ranks;
  for (int32_t i = 0; i < 4; ++i) {
    RankFacts& rank = ranks.emplace_back();
    const bool second = i > 1;
    rank.rank = i;
    rank.host = second ? "b" : "a";
    rank.boot = second ? "2" : "1";
    rank.version = "1.2.3";
    rank.model = "0123";
    rank.model_path = "/models/bard";
    rank.clock_s = 1e9 + 0.01 * i;
    rank.shm_bytes = int64_t{1} << 30;
    rank.open_files = 4096;
    rank.cores = 8;
    rank.free_bytes = int64_t{64} << 30;
    rank.memory_bytes = int64_t{40} << 30;
    rank.operations_per_s = 1e10 * (1 + 0.01 * i);
    rank.interfaces = {{"lo", "127.0.0.1", 8, true, true},
                       {"eth0", second ? "10.1.0.3" : "10.1.0.2", 24, true, false}};
    rank.own_address = rank.interfaces[1].address;
    if (i == 0) rank.port = 50051;
    if (i == 0) rank.ways = {{.rank = 2, .latency_us = 20, .bytes_per_s = 1e10}};
    rank.nccl_bytes_per_s = 2e11;
    if (i % 2 != 0) continue;
    rank.cards = {{.name = "GPU0", .pcie_width = 16, .most_pcie_width = 16},
                  {.name = "mlx5_0", .bytes_per_s = 5e10, .rdma = true}};
  }
  return ranks;
}

std::vector<Finding> Wrong(const std::vector<RankFacts>& ranks) {
  std::vector<Finding> findings = Diagnose(ranks);
  std::erase_if(findings, [](const Finding& finding) { return finding.level == Level::kOk; });
  return findings;
}

TEST(DiagnoseTest, NothingIsWrongWithWhatIsWell) {
  const std::vector<Finding> findings = Diagnose(Healthy());
  EXPECT_THAT(findings, Each(Field(&Finding::level, Level::kOk)));
  EXPECT_THAT(findings, Each(Field(&Finding::advice, IsEmpty())));
  const std::string text = FormatFindings(findings);
  for (const char* line :
       {"ok       versions    Skein 1.2.3 on all 4 ranks\n",
        "ok       model       /models/bard is the same on all ranks\n",
        "ok       clocks      within 0.02 s\n", "ok       host names  each stands for",
        "ok       network     all hosts are in 10.1.0.0/24\n",
        "ok       /dev/shm    1.00 GiB free at least\n",
        "ok       memory      40.00 GiB free at least\n", "ok       memlock     enough",
        "ok       open files  4096 at least\n", "ok       cores       the slowest does 98% of",
        "ok       GPUs        2 GPUs, no errors", "ok       links       no card",
        "ok       messages    hosts exchange 10.0 GB/s at least, and answer within 20 us\n",
        "ok       exchanges   NCCL sums 64 MiB at 200.0 GB/s, and GPUs of a host write",
        "ok       port        50051 of a is free"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, EndsWith("\n0 errors, 0 warnings\n"));
}

struct Fault {
  std::string check;
  Level level;
  std::string says;
  std::function<void(std::vector<RankFacts>&)> plant;
};

// Each is named, with what to do, and nothing else is.
TEST(DiagnoseTest, WhatIsWrongIsNamedAlone) {
  const std::vector<Fault> faults = {
      {"versions", Level::kError, "rank 3 on b: Skein 1.2.2, where the others have 1.2.3",
       [](auto& r) { r[3].version = "1.2.2"; }},
      {"model", Level::kError,
       "rank 2 on b: /models/bard is another model than on rank 0 on a, rank 1 on a, rank 3 on b",
       [](auto& r) { r[2].model = "4567"; }},
      {"model", Level::kError, "rank 3 on b: no such folder",
       [](auto& r) { r[3].model.clear(), r[3].no_model = "no such folder"; }},
      {"clocks", Level::kWarning, "b: its clock is 2.0 s apart from a's",
       [](auto& r) { r[2].clock_s = r[0].clock_s + 2; }},
      {"clocks", Level::kError, "b: its clock is 60.0 s apart",
       [](auto& r) { r[2].clock_s = r[0].clock_s - 60; }},
      {"host names", Level::kWarning, "b: its own name stands for 127.0.1.1",
       [](auto& r) { r[2].own_address = "127.0.1.1"; }},
      {"host names", Level::kError, "a: its own name stands for 127.0.1.1",
       [](auto& r) { r[0].own_address = "127.0.1.1"; }},
      {"host names", Level::kError, "a: two hosts have this name",
       [](auto& r) { r[2].host = r[3].host = "a"; }},
      {"host names", Level::kWarning, "b: its own name stands for no address",
       [](auto& r) { r[2].own_address.clear(); }},
      {"network", Level::kError, "b: OMPI_MCA_btl_tcp_if_include=eth1 names no interface of it",
       [](auto& r) { r[2].settings["OMPI_MCA_btl_tcp_if_include"] = "eth1"; }},
      {"network", Level::kError, "a: OMPI_MCA_btl_tcp_if_include=lo names loopback alone",
       [](auto& r) { r[0].settings["OMPI_MCA_btl_tcp_if_include"] = "lo"; }},
      {"network", Level::kError, "a: OMPI_MCA_oob_tcp_if_include=eth1 names eth1, which is down",
       [](auto& r) {
         r[0].interfaces.push_back({"eth1", "10.9.0.2", 24, false, false});
         r[0].settings["OMPI_MCA_oob_tcp_if_include"] = "eth1";
       }},
      {"network", Level::kError, "b: PRTE_MCA_prte_if_include=eth1 names no interface of it",
       [](auto& r) { r[2].settings["PRTE_MCA_prte_if_include"] = "eth1"; }},
      {"network", Level::kError, "a: NCCL_SOCKET_IFNAME==eth names no interface of it",
       [](auto& r) { r[0].settings["NCCL_SOCKET_IFNAME"] = "=eth"; }},
      {"network", Level::kError,
       "b: OMPI_MCA_btl_tcp_if_exclude=lo,eth0 leaves no interface by which other hosts are "
       "reached",
       [](auto& r) { r[2].settings["OMPI_MCA_btl_tcp_if_exclude"] = "lo,eth0"; }},
      {"network", Level::kError, "a: OMPI_MCA_oob_tcp_if_exclude=10.0.0.0/8 leaves no interface",
       [](auto& r) { r[0].settings["OMPI_MCA_oob_tcp_if_exclude"] = "10.0.0.0/8"; }},
      {"network", Level::kWarning, "a: OMPI_MCA_btl=self,vader is without tcp",
       [](auto& r) { r[0].settings["OMPI_MCA_btl"] = "self,vader"; }},
      {"network", Level::kWarning, "b: OMPI_MCA_btl=^openib,tcp is without tcp",
       [](auto& r) { r[2].settings["OMPI_MCA_btl"] = "^openib,tcp"; }},
      // A network that all are in, but for what one host leaves out.
      {"network", Level::kWarning, "no network has all hosts in it",
       [](auto& r) {
         for (RankFacts& rank : r) {
           rank.interfaces.push_back({"eth1", "10.9.0.1", 24, true, false});
           rank.clock_s = 0;
         }
         r[2].interfaces.back() = {"eth1", "10.8.0.1", 24, true, false};
         r[2].settings["OMPI_MCA_btl_tcp_if_exclude"] = "eth0";
       }},
      {"network", Level::kWarning, "no network has all hosts in it",
       [](auto& r) {
         r[2].interfaces[1].address = "10.2.0.3";
         for (RankFacts& rank : r) rank.clock_s = 0;  // nor have they met
       }},
      {"network", Level::kWarning, "no network has all hosts in it",
       [](auto& r) {
         for (RankFacts& rank : r) {
           rank.interfaces[1] = {"docker0", "172.17.0.1", 16, true, false};
           rank.clock_s = 0;
         }
       }},
      {"/dev/shm", Level::kError, "b: 8.0 MiB free, for 2 ranks",
       [](auto& r) { r[2].shm_bytes = 8 << 20; }},
      {"/dev/shm", Level::kWarning, "b: 64.0 MiB free, for 2 ranks",
       [](auto& r) { r[2].shm_bytes = 64 << 20; }},
      {"memory", Level::kWarning, "b: a cgroup leaves 2.00 GiB of 64.00 GiB that are free",
       [](auto& r) { r[2].memory_bytes = int64_t{2} << 30; }},
      {"memlock", Level::kWarning, "b: at most 64.0 KiB may be locked",
       [](auto& r) { r[2].memlock_bytes = 64 << 10; }},
      {"ranks", Level::kWarning, "b: 2 ranks on 1 core",
       [](auto& r) {
         for (RankFacts& rank : r) rank.cards.clear();
         r[2].cores = r[3].cores = 1;
       }},
      {"open files", Level::kWarning, "b: 512 at most", [](auto& r) { r[2].open_files = 512; }},
      {"open files", Level::kError, "b: 64 at most", [](auto& r) { r[2].open_files = 64; }},
      {"cores", Level::kWarning, "rank 1 on a: its core does 50% of what its peers' do",
       [](auto& r) { r[1].operations_per_s = 0.505e10 * 1.02; }},
      {"GPUs", Level::kError, "b: GPU0 had 2 memory errors that ECC could not correct",
       [](auto& r) { r[2].cards[0].ecc_errors = 2; }},
      {"GPUs", Level::kWarning, "b: GPU0 is slowed by heat (hardware)",
       [](auto& r) { r[2].cards[0].slowed_by = {"heat (hardware)"}; }},
      {"GPUs", Level::kWarning, "b: 0 GPUs, where another host has 1",
       [](auto& r) { r[2].cards.erase(r[2].cards.begin()); }},
      {"GPUs", Level::kError, "b: the driver is gone",
       [](auto& r) { r[2].no_gpus = "the driver is gone"; }},
      {"links", Level::kWarning, "b: GPU0 has 4 of 16 lanes of PCIe",
       [](auto& r) { r[2].cards[0].pcie_width = 4; }},
      {"links", Level::kWarning, "b: GPU0: 1 NVLink down",
       [](auto& r) { r[2].cards[0].nvlinks_down = 1; }},
      {"links", Level::kWarning, "b: mlx5_0 runs at 12.5 GB/s, on another host at 50.0 GB/s",
       [](auto& r) { r[2].cards[1].bytes_per_s = 1.25e10; }},
      {"links", Level::kWarning, "b: no mlx5_0 is up, which other hosts have",
       [](auto& r) { r[2].cards.pop_back(); }},
      {"exchanges", Level::kWarning,
       "GPUs exchange by way of the hosts' memory, which is slow: rank 3: no libnccl.so.2",
       [](auto& r) {
         for (RankFacts& rank : r) rank.no_nccl = "rank 3: no libnccl.so.2";
       }},
      {"exchanges", Level::kWarning,
       "b: no GPU writes into another one's memory: rank 1 of the group: no access",
       [](auto& r) { r[2].no_peers = r[3].no_peers = "rank 1 of the group: no access"; }},
      {"port", Level::kError, "a: 50051: another program listens there",
       [](auto& r) { r[0].port_taken = "another program listens there"; }},
  };
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.says);
    std::vector<RankFacts> ranks = Healthy();
    fault.plant(ranks);
    const std::vector<Finding> wrong = Wrong(ranks);
    ASSERT_THAT(wrong, SizeIs(1)) << FormatFindings(wrong);
    EXPECT_EQ(wrong[0].check, fault.check);
    EXPECT_EQ(wrong[0].level, fault.level);
    EXPECT_THAT(wrong[0].says, StartsWith(fault.says));
    EXPECT_THAT(wrong[0].advice, testing::Not(IsEmpty()));
    EXPECT_THAT(FormatFindings(wrong), HasSubstr(wrong[0].advice));
  }
}

// Hosts a, b, c and d of a rank each, whose ways are all alike.
std::vector<RankFacts> FourHosts() {
  std::vector<RankFacts> ranks;
  for (int32_t i = 0; i < 4; ++i) {
    RankFacts& rank = ranks.emplace_back(Healthy()[i < 2 ? 0 : 2]);
    rank.rank = i;
    rank.host = rank.boot = std::string(1, static_cast<char>('a' + i));
    rank.ways.clear();
    for (int32_t other = i + 1; other < 4; ++other) rank.ways.push_back({other, 20, 1e10});
  }
  return ranks;
}

// A host of which all ways are slow is named alone, else each slow way.
TEST(DiagnoseTest, SlowWaysAreNamed) {
  const std::vector<RankFacts> ranks = FourHosts();
  EXPECT_THAT(Wrong(ranks), IsEmpty());
  std::vector<RankFacts> pair = ranks;
  pair[1].ways[0].bytes_per_s = 1e9;  // to c
  ASSERT_THAT(Wrong(pair), SizeIs(1));
  EXPECT_EQ(Wrong(pair)[0].says, "b and c exchange 1.0 GB/s, where others have 10.0 GB/s");
  std::vector<RankFacts> host = ranks;
  host[0].ways[1].bytes_per_s = host[1].ways[0].bytes_per_s = 1e9;
  host[2].ways[0].bytes_per_s = 2e9;
  ASSERT_THAT(Wrong(host), SizeIs(1));
  EXPECT_EQ(Wrong(host)[0].says,
            "c exchanges 2.0 GB/s with other hosts, where they have 10.0 GB/s");
  // Of three hosts one alone makes two of three ways slow.
  host.pop_back();
  for (RankFacts& rank : host) {
    std::erase_if(rank.ways, [](const WayFacts& way) { return way.rank == 3; });
  }
  ASSERT_THAT(Wrong(host), SizeIs(1));
  EXPECT_THAT(Wrong(host)[0].says, StartsWith("c exchanges 1.0 GB/s with other hosts"));
}

// Two of four: the way between the two others is the rule.
TEST(DiagnoseTest, SeveralSlowHostsAreNamed) {
  std::vector<RankFacts> ranks = FourHosts();
  for (RankFacts& rank : ranks) {
    for (WayFacts& way : rank.ways) {
      if (rank.rank > 0 || way.rank > 1) way.bytes_per_s = 1e9;
    }
  }
  const std::vector<Finding> wrong = Wrong(ranks);
  ASSERT_THAT(wrong, SizeIs(2));
  EXPECT_THAT(wrong[0].says, StartsWith("c exchanges 1.0 GB/s"));
  EXPECT_THAT(wrong[1].says, StartsWith("d exchanges 1.0 GB/s"));
}

// With a GPU on each host there is nothing to say of peers.
TEST(DiagnoseTest, LoneGpusHaveNoPeers) {
  const std::vector<RankFacts> all = Healthy();
  const std::string text = FormatFindings(Diagnose({all[0], all[2]}));
  EXPECT_THAT(text, HasSubstr("NCCL sums 64 MiB at 200.0 GB/s\n"));
}

// What is wrong only between hosts.
TEST(DiagnoseTest, OneHostNeedsNoNetwork) {
  std::vector<RankFacts> ranks = Healthy();
  ranks.resize(2);
  for (RankFacts& rank : ranks) {
    rank.own_address = "127.0.1.1";
    rank.memlock_bytes = 64 << 10;
    rank.cards.clear();
    rank.settings["OMPI_MCA_btl_tcp_if_include"] = "lo";
  }
  EXPECT_THAT(Wrong(ranks), IsEmpty());
}

TEST(DiagnoseTest, InterfacesAreNamedAsTheirReadersHaveIt) {
  std::vector<RankFacts> ranks = Healthy();
  const auto wrong = [&](const char* setting, const char* value) {
    for (RankFacts& rank : ranks) rank.settings = {{setting, value}};
    return !Wrong(ranks).empty();
  };
  EXPECT_FALSE(wrong("NCCL_SOCKET_IFNAME", "eth"));
  EXPECT_FALSE(wrong("NCCL_SOCKET_IFNAME", "^docker"));
  EXPECT_FALSE(wrong("NCCL_SOCKET_IFNAME", "=eth0"));
  EXPECT_TRUE(wrong("NCCL_SOCKET_IFNAME", "ib"));
  EXPECT_FALSE(wrong("OMPI_MCA_btl_tcp_if_include", "ib0,eth0"));
  EXPECT_FALSE(wrong("OMPI_MCA_btl_tcp_if_include", "10.1.0.0/24"));
  EXPECT_TRUE(wrong("OMPI_MCA_btl_tcp_if_include", "eth"));
  EXPECT_TRUE(wrong("OMPI_MCA_btl_tcp_if_include", "10.9.0.0/24"));
  EXPECT_FALSE(wrong("OMPI_MCA_btl_tcp_if_exclude", "lo,docker0"));
  EXPECT_FALSE(wrong("OMPI_MCA_btl", "self,vader,tcp"));
  EXPECT_FALSE(wrong("OMPI_MCA_btl", "^openib"));
}

TEST(FactsTest, ComeBackAsTheyWere) {
  std::vector<RankFacts> ranks = Healthy();
  ranks[1].settings["NCCL_SOCKET_IFNAME"] = "eth0";
  ranks[2].cards[0].slowed_by = {"heat"};
  ranks[3].no_peers = "no access";
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<RankFacts> back, FactsFromJson(FactsToJson(ranks)));
  EXPECT_EQ(FactsToJson(back), FactsToJson(ranks));
  // Numbers that would be lost show in what is found.
  ranks[0].memlock_bytes = 65536;
  ranks[0].open_files = 100;
  ranks[1].memory_bytes = 1;
  ranks[0].cards[0].ecc_errors = 3;
  ranks[0].cards[0].nvlinks_down = 1;
  ranks[0].cards[0].pcie_width = 8;
  ranks[2].cards[1].bytes_per_s = 1e9;
  ranks[2].no_nccl = "a firewall";
  const std::string findings = FormatFindings(Diagnose(ranks));
  EXPECT_NE(findings, FormatFindings(Diagnose(Healthy())));
  EXPECT_EQ(FormatFindings(Diagnose(*FactsFromJson(FactsToJson(ranks)))), findings);
  ASSERT_EQ(back.size(), 4u);
  EXPECT_EQ(back[2].cards[0].slowed_by.at(0), "heat");
  EXPECT_EQ(back[3].interfaces[1].address, "10.1.0.3");
  EXPECT_EQ(back[0].ways.at(0).rank, 2);
  EXPECT_EQ(back[0].nccl_bytes_per_s, 2e11);
  EXPECT_EQ(back[3].no_peers, "no access");
  for (const char* text : {"", "{}", "[]", R"({"ranks": 3})", R"({"ranks": [{"rank": "x"}]})"}) {
    EXPECT_FALSE(FactsFromJson(text).ok()) << text;
  }
}

}  // namespace
}  // namespace skein::topology

#include "topology/draw/dot.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/draw/test_topologies.h"

namespace skein::topology {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// What a reader of the part of DOT that is written here sees.
struct Read {
  std::string error;                         // empty: well-formed
  std::map<std::string, std::string> nodes;  // their labels, as they are written
  std::vector<std::string> clusters;         // their labels
  std::vector<std::pair<std::string, std::string>> edges;
  std::multiset<std::string> edge_labels;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  Read Run() {
    if (Next() != "graph") return Fail("no graph");
    Next();
    if (Next() != "{") return Fail("no {");
    int depth = 1;
    while (depth > 0 && read_.error.empty()) {
      const std::string token = Next();
      if (token == "}") {
        --depth;
      } else if (token == "subgraph") {
        if (Next().rfind("\"cluster_", 0) != 0) return Fail("a subgraph that is no cluster");
        if (Next() != "{") return Fail("a subgraph without {");
        ++depth;
      } else if (token == "label") {
        if (Next() != "=") return Fail("no =");
        read_.clusters.push_back(Next());
        if (Next() != ";") return Fail("no ; behind a label");
      } else if (IsName(token)) {
        Statement(token);
      } else {
        return Fail("unexpected '" + token + "'");
      }
    }
    if (read_.error.empty() && !Next().empty()) return Fail("text behind the graph");
    return read_;
  }

 private:
  Read Fail(const std::string& error) {
    if (read_.error.empty()) read_.error = error;
    return read_;
  }
  static bool IsName(std::string_view token) {
    return !token.empty() && std::all_of(token.begin(), token.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '_' || c == '.';
    });
  }

  void Statement(const std::string& name) {
    std::string token = Next(), label;
    const bool edge = token == "--";
    if (edge) {
      read_.edges.emplace_back(name, Next());
      token = Next();
    }
    if (token == "[") {
      do {
        const std::string key = Next();
        if (!IsName(key) || Next() != "=") Fail("a bad attribute of " + name);
        const std::string value = Next();
        if (!IsName(value) && value.front() != '"') Fail("a bad value: " + value);
        if (key == "label") label = value;
        token = Next();
      } while (token == "," && read_.error.empty());
      if (token != "]") Fail("no ]");
      token = Next();
    }
    if (token != ";") Fail("no ; behind " + name);
    if (edge) {
      if (!label.empty()) read_.edge_labels.insert(label);
    } else if (name != "graph" && name != "node" && name != "edge") {
      if (!read_.nodes.emplace(name, label).second) Fail(name + " is there twice");
    }
  }

  // A string with its quotes, a word, "--" or another character; "" at the end.
  std::string Next() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_.front()))) {
      rest_.remove_prefix(1);
    }
    if (rest_.empty()) return "";
    size_t size = 1;
    if (rest_.front() == '"') {
      while (size < rest_.size() && rest_[size] != '"') {
        if (static_cast<unsigned char>(rest_[size]) < 0x20) Fail("a control character");
        size += rest_[size] == '\\' ? 2 : 1;
      }
      if (size >= rest_.size()) Fail("a string does not end");
      ++size;
    } else if (IsName(rest_.substr(0, 1))) {
      while (size < rest_.size() && IsName(rest_.substr(size, 1))) ++size;
    } else if (rest_.substr(0, 2) == "--") {
      size = 2;
    }
    const std::string token(rest_.substr(0, size));
    rest_.remove_prefix(std::min(size, rest_.size()));
    return token;
  }

  std::string_view rest_;
  Read read_;
};

Read ReadDot(const std::string& dot) {
  Read read = Reader(dot).Run();
  for (const auto& [a, b] : read.edges) {
    EXPECT_TRUE(read.nodes.contains(a)) << a << " has an edge only";
    EXPECT_TRUE(read.nodes.contains(b)) << b << " has an edge only";
  }
  return read;
}

TEST(Reader, FindsWhatIsWrong) {
  EXPECT_EQ(Reader("graph \"a\" { b [label=\"x\\\"y\"]; b -- c; }").Run().error, "");
  for (const char* bad :
       {"", "graph \"a\" {", "graph \"a\" { b [label=\"x]; }", "graph \"a\" { b -- c }",
        "graph \"a\" { } }", "graph \"a\" { b [label=<x>]; }", "graph \"a\" { subgraph \"x\" { } }",
        "graph \"a\" { b; b; }", "graph \"a\" { b [label=\"x\ny\"]; }"}) {
    EXPECT_NE(Reader(bad).Run().error, "") << bad;
  }
}

TEST(TopologyDot, HasAllDevicesOnce) {
  for (const int hosts : {1, 2, 8}) {
    for (int gpus = 1; gpus <= 16; ++gpus) {
      const Topology topology = Alike(Switched(gpus), hosts);
      const Read read = ReadDot(TopologyDot(topology));
      ASSERT_EQ(read.error, "");
      for (int host = 0; host < hosts; ++host) {
        for (int i = 0; i < gpus; ++i) {
          EXPECT_THAT(read.nodes.at(absl::StrCat("h", host, "gpu", i)),
                      HasSubstr(absl::StrCat("GPU", i, "\\nH100 80GB HBM3\\n80 GiB\\nreads")));
          EXPECT_THAT(read.nodes.at(absl::StrCat("h", host, "nic", i)),
                      HasSubstr(absl::StrCat("NIC", i, "\\nmlx5_", i)));
        }
      }
      EXPECT_EQ(read.nodes.contains("fabric"), hosts > 1);
      // With their switches, and NVSwitch, or what stands for a NUMA node without devices.
      EXPECT_EQ(read.nodes.size(), hosts * (3 * gpus + 1) + (hosts > 1)) << gpus;
      // To its switch, from there to the NIC, to NVSwitch, to the fabric.
      const size_t edges = (2 + (gpus > 1) + (hosts > 1)) * gpus * hosts;
      EXPECT_EQ(read.edges.size(), edges) << gpus;
      EXPECT_EQ(read.edge_labels.count("\"NV18 · 450 GB/s\""), gpus > 1 ? gpus * hosts : 0);
    }
  }
}

TEST(TopologyDot, HasEveryNvlinkOfACube) {
  const Read read = ReadDot(TopologyDot(Dgx1V()));
  ASSERT_EQ(read.error, "");
  EXPECT_EQ(read.edge_labels.count("\"NV1 · 25 GB/s\""), 8u);
  EXPECT_EQ(read.edge_labels.count("\"NV2 · 50 GB/s\""), 8u);
  EXPECT_EQ(read.edge_labels.count("\"SYS · 18 GB/s\""), 1u);
  EXPECT_THAT(read.edges, Contains(std::pair<std::string, std::string>("h0gpu2", "h0gpu6")));
  EXPECT_THAT(read.edges, Not(Contains(std::pair<std::string, std::string>("h0gpu0", "h0gpu6"))));
  EXPECT_THAT(read.clusters, Contains("\"PIX\\l\"").Times(4));
}

TEST(TopologyDot, HasPcieAndRanks) {
  const Read read = ReadDot(TopologyDot(Pcie4(), {{0, 0, "rank 0", 0},
                                                  {0, 0, "rank 1", 1},
                                                  {0, -1, "rank 2", 1},
                                                  {0, 4, "lost", 0},
                                                  {1, 0, "lost", 0},
                                                  {-1, -1, "lost", 0},
                                                  {0, -2, "lost", 0}}));
  ASSERT_EQ(read.error, "");
  EXPECT_EQ(read.edge_labels.count("\"NODE · 22 GB/s\""), 2u);
  EXPECT_EQ(read.edge_labels.count("\"SYS · 18 GB/s\""), 1u);
  EXPECT_THAT(read.nodes.at("h0gpu0"), HasSubstr("\\nrank 0\\nrank 1\""));
  EXPECT_EQ(read.nodes.at("h0cores0"), "\"cores\\nrank 2\"");
  for (const auto& [name, label] : read.nodes) EXPECT_THAT(label, Not(HasSubstr("lost")));
  EXPECT_THAT(read.clusters, Contains(HasSubstr("figures modelled")));
}

TEST(TopologyDot, DrawsHostsWithoutGpusAndMany) {
  const Read cpus = ReadDot(TopologyDot(CpuHosts(3)));
  ASSERT_EQ(cpus.error, "");
  EXPECT_EQ(cpus.nodes.at("h2cores0"), "\"cores\"");
  EXPECT_EQ(cpus.edges.size(), 3u);
  EXPECT_THAT(cpus.clusters, Contains(HasSubstr("figures measured")));
  std::vector<RankLabel> ranks;
  for (int i = 0; i < 1024; ++i) ranks.push_back({i / 8, i % 8, absl::StrCat("rank ", i)});
  const Read many = ReadDot(TopologyDot(DgxH100(128), ranks));
  ASSERT_EQ(many.error, "");
  EXPECT_EQ(many.nodes.at("more2"), "\"… 125 more, alike\\nnode2 to node126\\n1000 ranks\"");
  EXPECT_TRUE(many.nodes.contains("h127gpu7"));
  EXPECT_FALSE(many.nodes.contains("h2gpu0"));
  EXPECT_EQ(ReadDot(TopologyDot(Topology{.hosts = {{.name = "a", .cores = 1}}})).error, "");
}

TEST(TopologyDot, EscapesNames) {
  const std::string hostile = "a\"];}\n\\\\\\N \\\" <b> &lt; \xff\x01";
  Topology topology = DgxH100(2);
  topology.name = topology.fabric.name = hostile;
  for (Host& host : topology.hosts) {
    host.name = host.name + hostile;
    host.cpu = hostile;
    for (Gpu& gpu : host.interconnect.gpus) gpu.name = gpu.model = hostile;
    for (Nic& nic : host.interconnect.nics) nic.name = nic.device = hostile;
  }
  const std::string dot = TopologyDot(topology, {{0, 0, hostile}, {1, -1, hostile}});
  const Read read = ReadDot(dot);
  EXPECT_EQ(read.error, "");
  EXPECT_EQ(read.edges.size(), ReadDot(TopologyDot(DgxH100(2))).edges.size());
  EXPECT_THAT(read.nodes.at("h1nic3"),
              HasSubstr("a\\\"];}\\\\x0a\\\\\\\\\\\\N \\\\\\\" <b> &amp;lt; \\\\xff\\\\x01"));
}

}  // namespace
}  // namespace skein::topology

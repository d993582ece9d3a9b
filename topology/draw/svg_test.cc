#include "topology/draw/svg.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <pugixml.hpp>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/draw/canvas.h"
#include "topology/draw/test_topologies.h"
#include "topology/draw/text_width.h"

namespace skein::topology {
namespace {

using draw::Box;
using draw::Point;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double kNear = 0.02;  // numbers are written with two decimals

struct TextBox {
  std::string text;
  std::string kind;  // of the box that it stands in
  Box box;
};
struct Drawn {
  std::vector<std::pair<std::string, Box>> boxes;  // by kind
  std::vector<TextBox> texts;
  std::vector<std::pair<Point, Point>> lines;  // straight parts

  std::vector<std::string> Texts(const std::string& kind = "") const {
    std::vector<std::string> found;
    for (const TextBox& text : texts) {
      if (kind.empty() || text.kind == kind) found.push_back(text.text);
    }
    return found;
  }
  std::vector<Box> Boxes(const std::string& kind) const {
    std::vector<Box> found;
    for (const auto& [of, box] : boxes) {
      if (of == kind) found.push_back(box);
    }
    return found;
  }
};

std::string Show(const Box& box) {
  return absl::StrCat(box.x, ",", box.y, " ", box.width, "x", box.height);
}
bool Within(const Box& inner, const Box& outer) {
  return inner.x >= outer.x - kNear && inner.y >= outer.y - kNear &&
         inner.right() <= outer.right() + kNear && inner.bottom() <= outer.bottom() + kNear;
}
bool Overlap(const Box& a, const Box& b) {
  return a.x < b.right() - kNear && b.x < a.right() - kNear && a.y < b.bottom() - kNear &&
         b.y < a.bottom() - kNear;
}

Box BoxOf(const pugi::xml_node& rect) {
  return {rect.attribute("x").as_double(), rect.attribute("y").as_double(),
          rect.attribute("width").as_double(), rect.attribute("height").as_double()};
}

// From capitals to below the line.
Box BoxOfText(const pugi::xml_node& text) {
  const draw::Font font = {text.attribute("font-size").as_double(),
                           text.attribute("font-weight").as_int() == 600};
  const double width = TextWidth(text.child_value(), font);
  const std::string anchor = text.attribute("text-anchor").value();
  const double before = anchor == "end" ? width : anchor == "middle" ? width / 2 : 0;
  return {text.attribute("x").as_double() - before,
          text.attribute("y").as_double() - 0.76 * font.size, width, font.size};
}

void ReadPath(const std::string& path, Drawn& drawn) {
  std::string plain = path;
  for (char& c : plain) {
    if (c == ',') c = ' ';
  }
  std::istringstream in(plain);
  Point at;
  for (char command; in >> command;) {
    Point to;
    if (command == 'Q') in >> to.x >> to.y;  // the corner
    in >> to.x >> to.y;
    ASSERT_FALSE(in.fail()) << path;
    if (command == 'L') drawn.lines.emplace_back(at, to);
    at = to;
  }
}

// A g with its rect first.
void ReadBox(const pugi::xml_node& g, const Box* outer, Drawn& drawn) {
  const pugi::xml_node rect = g.child("rect");
  const std::string kind = rect.attribute("class").value();
  const Box box = BoxOf(rect);
  if (outer != nullptr) {
    EXPECT_TRUE(Within(box, *outer)) << kind << " " << Show(box) << " in " << Show(*outer);
  }
  drawn.boxes.emplace_back(kind, box);
  for (const pugi::xml_node& child : g.children()) {
    const std::string name = child.name();
    if (name == "g") {
      ReadBox(child, &box, drawn);
    } else if (name == "text") {
      const TextBox text = {child.child_value(), kind, BoxOfText(child)};
      EXPECT_TRUE(Within(text.box, box))
          << "'" << text.text << "' " << Show(text.box) << " in " << kind << " " << Show(box);
      EXPECT_FALSE(text.text.empty());
      drawn.texts.push_back(text);
    } else if (name == "path") {
      ReadPath(child.attribute("d").value(), drawn);
    } else if (name == "rect") {
      EXPECT_TRUE(Within(BoxOf(child), box)) << kind;
      if (child != rect) drawn.boxes.emplace_back(child.attribute("class").value(), BoxOf(child));
    } else {
      EXPECT_EQ(name, "title");
    }
  }
}

// No two texts overlap, no line goes through the words of a card, nothing covers a device.
void CheckRoom(const Drawn& drawn) {
  for (size_t i = 0; i < drawn.texts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(Overlap(drawn.texts[i].box, drawn.texts[j].box))
          << "'" << drawn.texts[i].text << "' and '" << drawn.texts[j].text << "'";
    }
    const std::set<std::string> open = {"page", "host", "node"};
    if (!open.contains(drawn.texts[i].kind)) continue;  // a box of its own lies over lines
    for (const auto& [from, to] : drawn.lines) {
      const Box line = {std::min(from.x, to.x) - 0.5, std::min(from.y, to.y) - 0.5,
                        std::abs(from.x - to.x) + 1, std::abs(from.y - to.y) + 1};
      EXPECT_FALSE(Overlap(line, drawn.texts[i].box)) << "a line through " << drawn.texts[i].text;
    }
  }
  const std::set<std::string> solid = {"gpu",    "nic",    "mesh", "links",
                                       "switch", "bridge", "cpu",  "system"};
  for (const std::set<std::string>& kinds :
       {std::set<std::string>{"host", "fabric", "left-out"}, std::set<std::string>{"node"},
        std::set<std::string>{"group"}, std::set<std::string>{"badge"}, solid}) {
    std::vector<std::pair<std::string, Box>> boxes;
    for (const auto& box : drawn.boxes) {
      if (kinds.contains(box.first)) boxes.push_back(box);
    }
    for (size_t i = 0; i < boxes.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        EXPECT_FALSE(Overlap(boxes[i].second, boxes[j].second))
            << boxes[i].first << " " << Show(boxes[i].second) << " over " << boxes[j].first << " "
            << Show(boxes[j].second);
      }
    }
  }
}

Drawn ReadSvg(const std::string& svg) {
  Drawn drawn;
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_buffer(svg.data(), svg.size());
  EXPECT_TRUE(parsed) << parsed.description() << " at " << parsed.offset;
  const pugi::xml_node root = document.child("svg");
  EXPECT_STREQ(root.attribute("role").value(), "img");
  EXPECT_STREQ(root.attribute("aria-label").value(), root.child_value("title"));
  const Box all = {0, 0, root.attribute("width").as_double(), root.attribute("height").as_double()};
  EXPECT_EQ(root.attribute("viewBox").value(), absl::StrCat("0 0 ", all.width, " ", all.height));
  ReadBox(root.child("g"), &all, drawn);
  for (const auto& [from, to] : drawn.lines) {
    EXPECT_TRUE(Within({from.x, from.y, 0, 0}, all) && Within({to.x, to.y, 0, 0}, all));
  }
  CheckRoom(drawn);
  return drawn;
}

int Count(const std::vector<std::string>& texts, const std::string& text) {
  return static_cast<int>(std::count(texts.begin(), texts.end(), text));
}

std::vector<RankLabel> RankOfEachGpu(const Topology& topology) {
  std::vector<RankLabel> ranks;
  for (size_t host = 0; host < topology.hosts.size(); ++host) {
    for (size_t gpu = 0; gpu < topology.hosts[host].interconnect.gpus.size(); ++gpu) {
      const auto rank = static_cast<int32_t>(ranks.size());
      ranks.push_back({static_cast<int32_t>(host), static_cast<int32_t>(gpu),
                       absl::StrCat("rank ", rank), rank / 4});
    }
  }
  return ranks;
}

TEST(TopologySvg, NamesAllOnce) {
  for (const int hosts : {1, 2, 8}) {
    for (int gpus = 1; gpus <= 16; ++gpus) {
      SCOPED_TRACE(absl::StrCat(hosts, " hosts of ", gpus));
      const Topology topology = Alike(Switched(gpus), hosts);
      SKEIN_ASSERT_OK(CheckTopology(topology));
      const Drawn drawn = ReadSvg(TopologySvg(topology, RankOfEachGpu(topology)));
      const std::vector<std::string> texts = drawn.Texts();
      for (int i = 0; i < gpus; ++i) {
        EXPECT_EQ(Count(texts, absl::StrCat("GPU", i)), hosts);
        EXPECT_EQ(Count(texts, absl::StrCat("NIC", i, " · mlx5_", i)), hosts);
      }
      for (int i = 0; i < gpus * hosts; ++i) {
        EXPECT_EQ(Count(texts, absl::StrCat("rank ", i)), 1);
      }
      for (int i = 0; i < hosts; ++i) EXPECT_EQ(Count(texts, absl::StrCat("node", i)), 1);
      EXPECT_EQ(drawn.Boxes("gpu").size(), static_cast<size_t>(gpus * hosts));
      EXPECT_EQ(Count(texts, "H100 80GB HBM3"), gpus * hosts);
      EXPECT_EQ(Count(texts, "reads 3.35 TB/s"), gpus * hosts);
      EXPECT_EQ(Count(texts, "InfiniBand · 50 GB/s"), gpus * hosts);
      EXPECT_EQ(drawn.Boxes("fabric").empty(), hosts == 1);
    }
  }
}

TEST(TopologySvg, DrawsNvswitchesAsABar) {
  const Drawn drawn = ReadSvg(TopologySvg(DgxH100(1)));
  EXPECT_THAT(drawn.Texts("mesh"), ElementsAre("NVSwitch × 4 · NV18 · 450 GB/s each way"));
  const Box bar = drawn.Boxes("mesh")[0];
  for (const Box& gpu : drawn.Boxes("gpu")) {
    EXPECT_TRUE(gpu.x >= bar.x && gpu.right() <= bar.right() && gpu.y > bar.bottom());
  }
  EXPECT_THAT(drawn.Boxes("bridge"), IsEmpty());  // PCIe lies between none
  EXPECT_THAT(drawn.Texts("host"), Contains(HasSubstr("SYS 18 GB/s, 2 µs · figures modelled")));
  // On several decks, all of them are the same.
  EXPECT_EQ(ReadSvg(TopologySvg(Alike(Switched(16), 1))).Texts("mesh").size(), 2u);
  // Without switches it is no less.
  EXPECT_THAT(ReadSvg(TopologySvg(Alike(Switched(4, 0), 1))).Texts("mesh"),
              ElementsAre("NVLink · NV18 · 450 GB/s each way"));
}

// Each lane ends on the two GPUs that it joins, and crosses none of those that end there, too.
std::multiset<std::string> LanesOf(const std::string& svg) {
  pugi::xml_document document;
  EXPECT_TRUE(document.load_string(svg.c_str()));
  const Drawn all = ReadSvg(svg);
  const std::vector<Box> gpus = all.Boxes("gpu");
  const auto at = [&](Point point) {
    for (size_t i = 0; i < gpus.size(); ++i) {
      if (point.x > gpus[i].x && point.x < gpus[i].right() &&
          std::abs(point.y - gpus[i].y) < kNear) {
        return absl::StrCat(i);
      }
    }
    return std::string("?");
  };
  std::multiset<std::string> lanes;
  std::vector<std::vector<std::pair<Point, Point>>> drawn;  // up, across, down
  for (const auto& found : document.select_nodes("//path[@class='lane']")) {
    Drawn one;
    ReadPath(found.node().attribute("d").value(), one);
    lanes.insert(absl::StrCat(at(one.lines.front().first), "-", at(one.lines.back().second), " ",
                              found.node().attribute("stroke-width").value()));
    drawn.push_back(one.lines);
  }
  for (const auto& a : drawn) {
    for (const auto& b : drawn) {
      std::set<std::string> ends;
      for (const auto& lane : {a, b}) ends.insert({at(lane[0].first), at(lane[2].second)});
      if (ends.size() > 3) continue;
      for (const size_t upright : {0, 2}) {
        const double x = b[upright].first.x;
        EXPECT_FALSE(a[1].first.x < x && x < a[1].second.x && b[1].first.y < a[1].first.y)
            << "lanes of one GPU cross";
      }
    }
  }
  return lanes;
}

TEST(TopologySvg, DrawsNvlinksOfPairsAsLines) {
  const Topology topology = Dgx1V();
  const std::string svg = TopologySvg(topology);
  const Drawn drawn = ReadSvg(svg);
  EXPECT_EQ(Count(drawn.Texts("links"), "NV1"), 8);
  EXPECT_EQ(Count(drawn.Texts("links"), "NV2"), 8);
  EXPECT_THAT(drawn.Texts("mesh"), IsEmpty());
  EXPECT_THAT(drawn.Texts("host"), Contains(HasSubstr("NVLink 25 GB/s a link")));
  std::multiset<std::string> expected;
  for (int i = 0; i < 8; ++i) {
    for (int j = i + 1; j < 8; ++j) {
      const int links = topology.hosts[0].interconnect.OfGpus(i, j).nvlinks;
      if (links > 0) expected.insert(absl::StrCat(i, "-", j, links == 1 ? " 1.6" : " 2.4"));
    }
  }
  EXPECT_EQ(LanesOf(svg), expected);
  for (const TextBox& text : drawn.texts) {
    if (text.kind != "node") continue;
    for (const auto& [from, to] : drawn.lines) EXPECT_GT(std::min(from.y, to.y), text.box.bottom());
  }
  // Where there is room, rates stand on the lines.
  Host pairs = PlainHost(4, 0);
  Connect(pairs, 0, 1, {Path::kNvlink, 4});
  Connect(pairs, 2, 3, {Path::kNvlink, 4});
  SetNvlinkRate(pairs, 25e9);
  EXPECT_THAT(ReadSvg(TopologySvg(Alike(pairs, 1))).Texts("links"),
              ElementsAre("NV4 · 100 GB/s", "NV4 · 100 GB/s"));
}

TEST(TopologySvg, DrawsPcieByPath) {
  const Drawn drawn = ReadSvg(TopologySvg(Pcie4()));
  EXPECT_THAT(drawn.Texts("bridge"),
              ElementsAre("host bridges · NODE · 22 GB/s", "host bridges · NODE · 22 GB/s"));
  EXPECT_THAT(drawn.Texts("system"), ElementsAre("SYS", "18 GB/s"));
  Topology far = Pcie4();  // a NUMA node without devices is between
  for (const int gpu : {2, 3}) far.hosts[0].interconnect.gpus[gpu].numa_node = 2;
  EXPECT_THAT(ReadSvg(TopologySvg(far)).Texts("system"), ElementsAre("SYS", "18 GB/s"));
  Host host = PlainHost(4, 0);
  Connect(host, 0, 1, {Path::kSwitch});
  Connect(host, 2, 3, {Path::kBridge});
  const Drawn mixed = ReadSvg(TopologySvg(Alike(host, 1)));
  EXPECT_THAT(mixed.Texts("switch"), ElementsAre("PCIe switch · PIX · 26 GB/s"));
  EXPECT_THAT(mixed.Texts("bridge"), ElementsAre("host bridge", "host bridge · PHB"));
}

TEST(TopologySvg, DrawsHostsWithoutGpus) {
  std::vector<RankLabel> ranks;
  for (int i = 0; i < 150; ++i) ranks.push_back({i % 3, -1, absl::StrCat("rank ", i), i / 3});
  const Drawn drawn = ReadSvg(TopologySvg(CpuHosts(3), ranks));
  for (int i = 0; i < 150; ++i) {
    EXPECT_EQ(Count(drawn.Texts("badge"), absl::StrCat("rank ", i)), 1);
  }
  EXPECT_EQ(drawn.Boxes("cpu").size(), 3u * 112);
  const std::vector<std::string> texts = drawn.Texts("host");
  for (const char* fact : {"2 sockets", "112 cores", "L2 2 MiB a core", "L3 210 MiB",
                           "2 TiB of memory", "a core reads 12 GB/s alone, 5 GB/s with all",
                           "between ranks on cores 8 GB/s, 0.5 µs", "figures measured"}) {
    EXPECT_EQ(std::count_if(texts.begin(), texts.end(),
                            [&](const std::string& text) { return absl::StrContains(text, fact); }),
              3)
        << fact;
  }
  EXPECT_THAT(drawn.Texts("fabric"),
              Contains("100 Gb Ethernet · 50 GB/s a NIC each way · 2 µs · measured"));
}

TEST(TopologySvg, LeavesAlikeHostsOut) {
  const Topology topology = DgxH100(128);
  const std::string svg = TopologySvg(topology, RankOfEachGpu(topology), "many");
  EXPECT_LT(svg.size(), 100'000u);
  const Drawn drawn = ReadSvg(svg);
  EXPECT_THAT(drawn.Texts("left-out"),
              ElementsAre("… 125 more, alike · node2 to node126 · 1000 ranks"));
  for (const char* name : {"node0", "node1", "node127", "rank 15", "rank 1016", "many"}) {
    EXPECT_EQ(Count(drawn.Texts(), name), 1) << name;
  }
  for (const char* name : {"node2", "rank 16", "rank 1015"}) {
    EXPECT_EQ(Count(drawn.Texts(), name), 0) << name;
  }
}

TEST(TopologySvg, ColoursRanksByGroup) {
  const Topology topology = Alike(Switched(4), 1);
  const std::string svg = TopologySvg(topology, {{0, 0, "a", 0},
                                                 {0, 1, "b", 0},
                                                 {0, 1, "c", 1},
                                                 {0, 2, "d", -7},
                                                 {0, -1, "e", 8},
                                                 {0, 9, "lost"},
                                                 {3, 0, "lost"},
                                                 {-1, 0, "lost"},
                                                 {0, -2, "lost"}});
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(svg.c_str()));
  std::map<std::string, std::string> colours;
  for (const auto& found : document.select_nodes("//g[rect[@class='badge']]")) {
    colours[found.node().child_value("text")] =
        found.node().child("rect").attribute("fill").value();
  }
  EXPECT_EQ(colours.size(), 5u);
  EXPECT_EQ(colours["a"], colours["b"]);
  EXPECT_EQ(colours["a"], colours["e"]);
  EXPECT_NE(colours["a"], colours["c"]);
  EXPECT_EQ(colours["c"], colours["d"]);
  EXPECT_THAT(svg, Not(HasSubstr("lost")));
  ReadSvg(svg);
}

TEST(TopologySvg, EscapesAndShortensNames) {
  const std::string script = "<script>alert(\"1\")</script>&amp;'";
  for (const std::string& name :
       {script, std::string("\x01\x1b[31m\xff\xfe\xc0 \n\t", 12), std::string(10'000, 'W'),
        std::string("\u202egnihtemos \uFFFE\uFFFF"),
        std::string("日本語の名前はここでは長すぎます🧵🧵🧵🧵"), std::string("]]><!--")}) {
    SCOPED_TRACE(name.substr(0, 40));
    Topology topology = Alike(Switched(2), 2);
    topology.name = topology.fabric.name = name;
    for (Host& host : topology.hosts) {
      host.name += name;
      host.cpu = name;
      for (Gpu& gpu : host.interconnect.gpus) gpu.name = gpu.model = gpu.bus_id = name;
      for (Nic& nic : host.interconnect.nics) {
        nic.name = name;
        nic.device = name + "x";
      }
    }
    const std::string svg =
        TopologySvg(topology, {{0, 0, name, 0}, {1, -1, name, 1}, {0, 0, name, 0}}, name);
    EXPECT_THAT(svg, Not(HasSubstr("<script")));
    EXPECT_TRUE(std::none_of(svg.begin(), svg.end(),
                             [](unsigned char c) { return c < 0x20 && c != '\n'; }));
    const Drawn drawn = ReadSvg(svg);
    EXPECT_EQ(drawn.Texts("badge").size(), 3u);
    EXPECT_EQ(drawn.Boxes("gpu").size(), 4u);
  }
  const Topology plain = Alike(Switched(1), 1);
  EXPECT_THAT(ReadSvg(TopologySvg(plain, {}, script)).Texts("page"), Contains(script));
}

TEST(TopologySvg, DrawsWhatIsHardlyTold) {
  EXPECT_THAT(ReadSvg(TopologySvg({.hosts = {{.name = "a", .cores = 1}}})).Texts(),
              ElementsAre("Topology", "1 host · 1 core", "a", "1 core"));
  // As nvidia-smi tells of a node: no models, no memory, no rates, no NUMA nodes.
  Topology bare = Alike(Switched(8, 0), 1);
  Host& host = bare.hosts[0];
  host.numa_nodes.clear();
  host.links.clear();
  for (Gpu& gpu : host.interconnect.gpus) gpu = {.name = gpu.name};
  for (Nic& nic : host.interconnect.nics) nic = {.name = nic.name};
  const Drawn drawn = ReadSvg(TopologySvg(bare));
  EXPECT_THAT(drawn.Texts("mesh"), ElementsAre("NVLink · NV18"));
  EXPECT_THAT(drawn.Texts("nic"), Contains("NIC7"));
  EXPECT_THAT(drawn.Texts("node"), ElementsAre("NUMA node not told"));
  EXPECT_EQ(ReadSvg(TopologySvg(Alike(PlainHost(0, 20), 2))).Boxes("nic").size(), 40u);
}

// Whatever machines there may be, all has room.
TEST(TopologySvg, HasRoomForAnyMachine) {
  for (int seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](int limit) { return static_cast<int>(random() % limit); };
    const int gpus = below(seed % 20 == 0 ? 65 : 12), nics = below(seed % 20 == 1 ? 65 : 6);
    Host host = PlainHost(gpus, nics);
    const int devices = gpus + nics, kinds = 1 + below(6);
    for (int change = 0; change < devices * below(6); ++change) {
      const int i = below(devices), j = below(devices);
      if (i == j) continue;
      const Path path = static_cast<Path>(1 + (below(kinds) + seed) % 6);
      if (path != Path::kNvlink || (i < gpus && j < gpus)) {
        Connect(host, i, j, {path, path == Path::kNvlink ? 1 + below(4) : 0});
      }
    }
    if (below(2) == 0) SetNvlinkRate(host, 25e9);
    host.interconnect.nvswitches = below(2);
    for (Gpu& gpu : host.interconnect.gpus) {
      if (below(4) == 0) gpu.numa_node = below(5) - 1;
    }
    const int more = below(4);
    for (int i = 0; i < more; ++i) host.numa_nodes.push_back({CpuRange(0, below(300)), kGiB});
    const Topology topology = Alike(host, 1 + below(3));
    SKEIN_ASSERT_OK(CheckTopology(topology));
    std::vector<RankLabel> ranks;
    const int count = below(20);
    for (int i = 0; i < count; ++i) {
      ranks.push_back({below(3), below(gpus + 1) - 1, absl::StrCat("rank ", i), i});
    }
    const Drawn drawn = ReadSvg(TopologySvg(topology, ranks));
    EXPECT_EQ(drawn.Boxes("gpu").size(), gpus * topology.hosts.size());
    EXPECT_EQ(drawn.Boxes("nic").size(), nics * topology.hosts.size());
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace skein::topology

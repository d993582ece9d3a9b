#include "topology/draw/dot.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/picture.h"
#include "base/printable.h"
#include "topology/draw/packing.h"
#include "topology/draw/shape.h"
#include "topology/draw/words.h"

namespace skein::topology {
namespace {

using namespace draw;  // NOLINT

constexpr char kHead[] =
    "  graph [fontname=\"Helvetica,Arial,sans-serif\", fontsize=12, labeljust=l, style=rounded, "
    "color=\"#c3ccd5\", nodesep=0.2, ranksep=0.5];\n"
    "  node [fontname=\"Helvetica,Arial,sans-serif\", fontsize=10, shape=box, "
    "style=\"rounded,filled\", color=\"#818b98\", fillcolor=\"#ffffff\"];\n"
    "  edge [fontname=\"Helvetica,Arial,sans-serif\", fontsize=9, color=\"#818b98\"];\n";

// Lines as a string of DOT, in the middle or at the left. Backslashes and entities of HTML would
// have a meaning.
std::string Quoted(const std::vector<std::string>& lines, bool left = false) {
  const char* const end = left ? "\\l" : "\\n";
  std::string quoted = "\"";
  for (const std::string& line : lines) {
    if (line.empty()) continue;
    if (quoted.size() > 1) quoted.append(end);
    quoted.append(
        absl::StrReplaceAll(Printable(line), {{"\\", "\\\\"}, {"\"", "\\\""}, {"&", "&amp;"}}));
  }
  if (left) quoted.append(end);
  return quoted.append("\"");
}

class Graph {
 public:
  Graph(const Topology& topology, absl::Span<const RankLabel> ranks)
      : topology_(topology), ranks_(RanksOf(topology, ranks)) {}

  std::string Write() && {
    absl::StrAppend(&dot_, "graph ", Quoted({topology_.name.empty() ? "topology" : topology_.name}),
                    " {\n", kHead,
                    "  label=", Quoted({absl::StrJoin(TopologyFacts(topology_), " · ")}), ";\n");
    for (const ShownHost& shown : HostsToShow(topology_)) {
      if (shown.host >= 0) {
        WriteHost(shown.host);
      } else {
        WriteLeftOut(shown);
      }
    }
    if (topology_.hosts.size() > 1) {
      absl::StrAppend(&dot_, "  fabric [label=", Quoted({FabricWords(topology_.fabric)}),
                      ", shape=hexagon, style=filled, fillcolor=\"#3568b0\", "
                      "fontcolor=\"#ffffff\"];\n",
                      fabric_edges_);
    }
    dot_ += "}\n";
    return std::move(dot_);
  }

 private:
  void Open(const std::string& name, const std::vector<std::string>& label) {
    absl::StrAppend(&dot_, "  subgraph \"cluster_", name,
                    "\" {\n  label=", Quoted(label, /*left=*/true), ";\n");
  }
  void Close() { dot_ += "  }\n"; }
  void Edge(const std::string& a, const std::string& b, const std::string& words = "",
            const std::string& more = "") {
    absl::StrAppend(&dot_, "  ", a, " -- ", b);
    if (!words.empty()) absl::StrAppend(&dot_, " [label=", Quoted({words}), more, "]");
    dot_ += ";\n";
  }

  std::string Id(std::string_view kind, int index) const {
    return absl::StrCat("h", host_, std::string(kind), index);
  }

  void WriteHost(int index) {
    host_ = index;
    const Host& host = topology_.hosts[index];
    Open(absl::StrCat("h", index),
         {host.name, absl::StrJoin(HostFacts(host), " · "), absl::StrJoin(WayFacts(host), " · ")});
    WriteCores(host);
    const std::vector<Place> places = PlacesOf(host);
    int group = 0;
    for (size_t i = 0; i < places.size(); ++i) {
      Open(absl::StrCat("h", index, "_numa", i),
           {absl::StrJoin(NodeFacts(host, places[i].numa_node), " · ")});
      // A cluster without nodes is not drawn.
      if (places[i].groups.empty()) {
        absl::StrAppend(&dot_, "  ", Id("numa", static_cast<int>(i)),
                        " [label=\"\", style=invis];\n");
      }
      for (const PcieGroup& of : places[i].groups) WriteGroup(host, of, group++);
      Close();
    }
    WriteMeshes(host);
    WritePaths(host, places);
    Close();
    if (host.interconnect.nics.empty()) {
      absl::StrAppend(&fabric_edges_, "  ", Id("cores", 0), " -- fabric;\n");
    }
  }

  // The ranks on cores, and what stands for a host without NICs.
  void WriteCores(const Host& host) {
    const HostRanks& ranks = ranks_[host_];
    const bool joins = topology_.hosts.size() > 1 && host.interconnect.nics.empty();
    if (ranks.cores.empty() && !joins && !host.interconnect.connections.empty()) return;
    std::vector<std::string> label = {"cores"};
    for (const RankLabel* rank : ranks.cores) label.push_back(rank->text);
    WriteNode(Id("cores", 0), label, ranks.cores, "#ffffff");
  }

  // The first rank colours it.
  void WriteNode(const std::string& id, const std::vector<std::string>& label,
                 const std::vector<const RankLabel*>& ranks, std::string_view fill) {
    absl::StrAppend(&dot_, "  ", id, " [label=", Quoted(label));
    if (ranks.empty()) {
      absl::StrAppend(&dot_, ", fillcolor=\"", std::string(fill), "\"];\n");
    } else {
      absl::StrAppend(&dot_, ", fillcolor=\"", SvgColour(ranks.front()->group),
                      "\", fontcolor=\"#ffffff\"];\n");
    }
  }

  void WriteGroup(const Host& host, const PcieGroup& group, int index) {
    const Interconnect& of = host.interconnect;
    const bool switched = group.longest != Path::kSelf;
    const std::string id = Id("switch", index);
    if (switched) {
      Open(absl::StrCat("h", host_, "_pcie", index), {ToString({group.longest})});
      const bool pairs = group.gpus.size() > 1;
      absl::StrAppend(&dot_, "  ", id, " [label=",
                      Quoted({std::string(PathWords(group.longest)),
                              pairs ? RateOf(host, {group.longest}) : ""}),
                      ", fillcolor=\"#d8dee4\"];\n");
    }
    for (const int index_of_gpu : group.gpus) {
      const Gpu& gpu = of.gpus[index_of_gpu];
      std::vector<std::string> label = {gpu.name, ShortModel(gpu.model)};
      if (gpu.memory_bytes > 0) label.push_back(ShortBytes(gpu.memory_bytes));
      if (!gpu.rates.reads.empty()) label.push_back(absl::StrCat("reads ", ReadWords(gpu.rates)));
      const std::vector<const RankLabel*>& ranks = ranks_[host_].gpus[index_of_gpu];
      for (const RankLabel* rank : ranks) label.push_back(rank->text);
      WriteNode(Id("gpu", index_of_gpu), label, ranks, "#eefaf3");
      if (switched) Edge(Id("gpu", index_of_gpu), id);
    }
    for (const int index_of_nic : group.nics) {
      const Nic& nic = of.nics[index_of_nic];
      const std::string node = Id("nic", index_of_nic);
      WriteNode(node, {nic.name, nic.device == nic.name ? "" : nic.device, NicWords(nic)}, {},
                "#eaf4ff");
      if (switched) Edge(id, node);
      absl::StrAppend(&fabric_edges_, "  ", node, " -- fabric;\n");
    }
    if (switched) Close();
  }

  // A node for NVSwitches and meshes in which all are alike, else an edge for each pair.
  void WriteMeshes(const Host& host) {
    const Interconnect& of = host.interconnect;
    const std::vector<NvlinkMesh> meshes = NvlinkMeshesOf(of);
    for (size_t i = 0; i < meshes.size(); ++i) {
      const std::vector<int>& gpus = meshes[i].gpus;
      if (meshes[i].nvlinks > 0 && (gpus.size() > 2 || of.nvswitches > 0)) {
        const std::string id = Id("nvlink", static_cast<int>(i));
        absl::StrAppend(&dot_, "  ", id, " [label=", Quoted({MeshWords(host, meshes[i])}),
                        ", fillcolor=\"#2a7a4b\", fontcolor=\"#ffffff\"];\n");
        const Connection connection = {Path::kNvlink, meshes[i].nvlinks};
        for (const int gpu : gpus) {
          Edge(id, Id("gpu", gpu), ConnectionWords(host, connection), ", color=\"#2a7a4b\"");
        }
        continue;
      }
      for (const int a : gpus) {
        for (const int b : gpus) {
          const Connection& connection = of.OfGpus(a, b);
          if (a >= b || connection.path != Path::kNvlink) continue;
          Edge(Id("gpu", a), Id("gpu", b), ConnectionWords(host, connection),
               absl::StrCat(", color=\"#2a7a4b\", penwidth=", std::min(connection.nvlinks, 6)));
        }
      }
    }
  }

  // PCIe between GPUs: an edge from each group to the next one of its NUMA node, and from each node
  // to the next, by the first of their GPUs that NVLink does not join.
  void WritePaths(const Host& host, const std::vector<Place>& places) {
    std::vector<int> before;  // of the place before
    for (const Place& place : places) {
      std::vector<int> here, last;
      for (const PcieGroup& group : place.groups) {
        if (group.gpus.empty()) continue;
        WritePath(host, last, group.gpus);
        last = group.gpus;
        here.insert(here.end(), group.gpus.begin(), group.gpus.end());
      }
      if (here.empty()) continue;
      WritePath(host, before, here);
      before = here;
    }
  }

  void WritePath(const Host& host, const std::vector<int>& from, const std::vector<int>& to) {
    for (const int a : from) {
      for (const int b : to) {
        const Connection& connection = host.interconnect.OfGpus(a, b);
        if (connection.path == Path::kNvlink) continue;
        Edge(Id("gpu", a), Id("gpu", b), ConnectionWords(host, connection), ", style=dashed");
        return;
      }
    }
  }

  void WriteLeftOut(const ShownHost& shown) {
    int64_t ranks = 0;
    for (const int host : shown.left_out) ranks += CountOf(ranks_[host]);
    absl::StrAppend(&dot_, "  more", shown.left_out.front(),
                    " [label=", Quoted(LeftOutFacts(topology_, shown, ranks)),
                    ", style=dashed];\n");
    absl::StrAppend(&fabric_edges_, "  more", shown.left_out.front(),
                    " -- fabric [style=dashed];\n");
  }

  const Topology& topology_;
  const std::vector<HostRanks> ranks_;
  int host_ = 0;  // that is being written
  std::string dot_;
  std::string fabric_edges_;
};

}  // namespace

std::string TopologyDot(const Topology& topology, absl::Span<const RankLabel> ranks) {
  return Graph(topology, ranks).Write();
}

}  // namespace skein::topology

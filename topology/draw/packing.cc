#include "topology/draw/packing.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "topology/draw/measures.h"
#include "topology/draw/words.h"

namespace skein::topology::draw {
namespace {

constexpr double kMostDeck = 1440;  // eight GPUs in frames, and storage NICs beside
constexpr double kBarePart = 190;   // a NUMA node without devices, where others have some
constexpr size_t kMostBeside = 2;   // of those beside others; more have decks of their own
constexpr size_t kMostCpus = 256;   // drawn one by one
constexpr size_t kMostPorts = 6;    // lanes of a GPU; of more NVLinks a bar tells
constexpr size_t kMostLanes = 48;   // of a host
constexpr double kCpuPart = 2 * kPartPad + kCpusOfRow * (kCpu + kCpuGap) - kCpuGap;

double WidthOfGpus(const PcieGroup& group) {
  return static_cast<double>(group.gpus.size()) * (kTile + kTileGap) - kTileGap;
}

class Packer {
 public:
  Packer(const Host& host, const HostRanks& ranks)
      : host_(host), of_(host.interconnect), places_(PlacesOf(host)) {
    ChooseMeshes();
    ChooseHeights(ranks);
  }

  Packing Run() && {
    PackBareParts();
    PackDevices();
    return std::move(packed_);
  }

 private:
  // Lanes show meshes in which pairs differ, and pairs alone; bars those that are alike or too
  // many.
  void ChooseMeshes() {
    packed_.lanes.resize(of_.gpus.size());
    size_t lanes = 0;
    for (NvlinkMesh& mesh : NvlinkMeshesOf(of_)) {
      const bool alike = mesh.nvlinks > 0 && (mesh.gpus.size() > 2 || of_.nvswitches > 0);
      std::vector<std::vector<int>> others;
      size_t most = 0, links = 0;
      for (const int gpu : mesh.gpus) {
        std::vector<int>& of_gpu = others.emplace_back();
        for (const int other : mesh.gpus) {
          if (of_.OfGpus(gpu, other).path == Path::kNvlink) of_gpu.push_back(other);
        }
        most = std::max(most, of_gpu.size());
        links += of_gpu.size();
      }
      if (alike || most > kMostPorts || lanes + links / 2 > kMostLanes) {
        packed_.meshes.push_back(std::move(mesh));
        continue;
      }
      lanes += links / 2;
      for (size_t i = 0; i < mesh.gpus.size(); ++i) {
        packed_.lanes[mesh.gpus[i]] = std::move(others[i]);
      }
      most_ = std::numeric_limits<double>::infinity();  // lanes cannot leave a deck
    }
  }

  void ChooseHeights(const HostRanks& ranks) {
    bool models = false, reads = false;
    size_t badges = 0;
    const auto gpus = static_cast<int>(of_.gpus.size());
    for (int gpu = 0; gpu < gpus; ++gpu) {
      models |= !of_.gpus[gpu].model.empty();
      reads |= !of_.gpus[gpu].rates.reads.empty();
      badges = std::max(badges, ranks.gpus[gpu].size());
      for (int other = 0; other < gpu; ++other) {
        packed_.bridges |= of_.OfGpus(gpu, other).path != Path::kNvlink;
      }
    }
    if (gpus > 0) {
      packed_.tile_height = kTileHeader + kLine * (models + reads) +
                            (kBadge + kBadgeGap) * static_cast<double>(badges);
    }
    const bool told = std::any_of(of_.nics.begin(), of_.nics.end(),
                                  [](const Nic& nic) { return !NicWords(nic).empty(); });
    if (!of_.nics.empty()) packed_.nic_height = told ? kNic : kBareNic;
    for (const Place& place : places_) {
      for (const PcieGroup& group : place.groups) {
        const int row = NicsOfRow(group);
        const int rows = (static_cast<int>(group.nics.size()) + row - 1) / row;
        if (!group.gpus.empty()) packed_.nic_rows = std::max(packed_.nic_rows, rows);
        packed_.switches |= !group.gpus.empty() && group.longest != Path::kSelf;
      }
    }
  }

  // A host without devices shows its processors one by one.
  Packing::Part BarePart(const Place& place) const {
    Packing::Part part = {.numa_node = place.numa_node, .width = kBarePart};
    if (of_.connections.empty()) {
      const size_t cpus = host_.numa_nodes[place.numa_node].cpus.size();
      part.cpus = cpus <= kMostCpus ? static_cast<int>(cpus) : 0;
      part.width = kCpuPart;
    }
    return part;
  }

  // NUMA nodes without devices, where there are many.
  void PackBareParts() {
    const auto bare = [](const Place& place) { return place.groups.empty(); };
    const auto count = std::count_if(places_.begin(), places_.end(), bare);
    beside_ = !of_.connections.empty() && static_cast<size_t>(count) <= kMostBeside;
    if (beside_) return;
    for (const Place& place : places_) {
      if (bare(place)) Add(BarePart(place));
    }
    Break();
  }

  void PackDevices() {
    for (const Place& place : places_) {
      Packing::Part part = {.numa_node = place.numa_node, .width = 2 * kPartPad};
      for (Packing::Unit& unit : UnitsOf(place)) {
        if (!part.units.empty()) {
          if (part.width + kTileGap + unit.width > most_) {
            Add(std::exchange(part, {.numa_node = place.numa_node, .width = 2 * kPartPad}));
          } else {
            part.width += kTileGap;
          }
        }
        part.width += unit.width;
        if (unit.group >= 0) {
          const std::vector<int>& gpus = packed_.groups[unit.group].gpus;
          part.gpus.insert(part.gpus.end(), gpus.begin(), gpus.end());
        }
        part.units.push_back(std::move(unit));
      }
      if (!part.units.empty()) Add(std::move(part));
    }
    for (const Place& place : places_) {  // behind, so that links between the others can be drawn
      if (place.groups.empty() && beside_) Add(BarePart(place));
    }
    Break();
  }

  std::vector<Packing::Unit> UnitsOf(const Place& place) {
    std::vector<Packing::Unit> units;
    std::vector<int> loose;
    for (const PcieGroup& group : place.groups) {
      if (group.gpus.empty()) {
        loose.insert(loose.end(), group.nics.begin(), group.nics.end());
        continue;
      }
      const double frame = group.longest == Path::kSelf ? 0 : kFrame;
      units.push_back({.group = static_cast<int>(packed_.groups.size()),
                       .width = WidthOfGpus(group) + 2 * frame});
      packed_.groups.push_back(group);
    }
    const auto column = static_cast<size_t>(
        std::max(1.0, (packed_.DevicesHeight() + kNicGap) / (packed_.nic_height + kNicGap)));
    for (size_t i = 0; i < loose.size(); i += column) {
      Packing::Unit& unit = units.emplace_back();
      unit.nics.assign(loose.begin() + static_cast<ptrdiff_t>(i),
                       loose.begin() + static_cast<ptrdiff_t>(std::min(loose.size(), i + column)));
      unit.width = kTile;
    }
    return units;
  }

  // Begins a deck where one is full.
  void Add(Packing::Part part) {
    if (!deck_.empty()) {
      const bool link = Between(of_, deck_.back(), part) != nullptr;
      part.gap = link ? kSystemGap : kPartGap;
      if (WidthOf(deck_) + part.gap + part.width > most_) {
        Break();
        part.gap = 0;
      }
    }
    deck_.push_back(std::move(part));
  }
  void Break() {
    if (!deck_.empty()) packed_.decks.push_back(std::exchange(deck_, {}));
  }

  const Host& host_;
  const Interconnect& of_;
  const std::vector<Place> places_;
  double most_ = kMostDeck;
  bool beside_ = false;
  Packing::Deck deck_;
  Packing packed_;
};

}  // namespace

std::vector<HostRanks> RanksOf(const Topology& topology, absl::Span<const RankLabel> ranks) {
  std::vector<HostRanks> of_hosts(topology.hosts.size());
  for (size_t host = 0; host < of_hosts.size(); ++host) {
    of_hosts[host].gpus.resize(topology.hosts[host].interconnect.gpus.size());
  }
  const auto hosts = static_cast<int32_t>(of_hosts.size());
  for (const RankLabel& rank : ranks) {
    if (rank.host < 0 || rank.host >= hosts) continue;
    HostRanks& of_host = of_hosts[rank.host];
    if (rank.gpu == -1) {
      of_host.cores.push_back(&rank);
    } else if (rank.gpu >= 0 && rank.gpu < static_cast<int32_t>(of_host.gpus.size())) {
      of_host.gpus[rank.gpu].push_back(&rank);
    }
  }
  return of_hosts;
}

int64_t CountOf(const HostRanks& ranks) {
  size_t count = ranks.cores.size();
  for (const std::vector<const RankLabel*>& of_gpu : ranks.gpus) count += of_gpu.size();
  return static_cast<int64_t>(count);
}

double Packing::DevicesHeight() const {
  double height = tile_height;
  if (switches) height += kRowGap + kBar;
  if (nic_rows > 0) height += kRowGap + nic_rows * (nic_height + kNicGap) - kNicGap;
  return std::max(height, nic_height);
}

Packing Pack(const Host& host, const HostRanks& ranks) { return Packer(host, ranks).Run(); }

int NicsOfRow(const PcieGroup& group) {
  return std::max(1, static_cast<int>((WidthOfGpus(group) + kNicGap) / (kLeastNic + kNicGap)));
}

double WidthOf(const Packing::Deck& deck) {
  double width = 0;
  for (const Packing::Part& part : deck) width += part.gap + part.width;
  return width;
}

const Connection* Between(const Interconnect& of, const Packing::Part& a, const Packing::Part& b) {
  if (a.numa_node == b.numa_node) return nullptr;
  for (const int i : a.gpus) {
    for (const int j : b.gpus) {
      if (of.OfGpus(i, j).path != Path::kNvlink) return &of.OfGpus(i, j);
    }
  }
  return nullptr;
}

}  // namespace skein::topology::draw

#include "topology/draw/host_layout.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "topology/draw/lanes.h"
#include "topology/draw/measures.h"
#include "topology/draw/words.h"

namespace skein::topology::draw {
namespace {

constexpr double kLeastWidth = 440;  // the facts of a small host want that
constexpr double kCoreBadge = 48;
constexpr double kSystemLabel = 78;
constexpr double kJoint = 8;  // of bars of several decks, from the card's border

bool IsBare(const Packing::Part& part) { return part.units.empty(); }

class Layouter {
 public:
  Layouter(const Host& host, const HostRanks& ranks)
      : host_(host), of_(host.interconnect), ranks_(ranks), packed_(Pack(host, ranks)) {
    layout_.gpus.resize(of_.gpus.size());
    layout_.nics.resize(of_.nics.size());
    for (const PcieGroup& group : packed_.groups) layout_.groups.push_back({.devices = group});
  }

  HostLayout Run() && {
    double content = 0;
    for (const Packing::Deck& deck : packed_.decks) content = std::max(content, WidthOf(deck));
    layout_.width = std::max(content + 2 * kPad, kLeastWidth);
    for (const Packing::Deck& deck : packed_.decks) PlaceAcross(deck);
    LayOutLanes();
    LayOutBars();
    double y = LayOutHeader();
    size_t part = 0;
    for (size_t deck = 0; deck < packed_.decks.size(); ++deck) {
      y = PlaceDown(deck, part, y) + kPartGap;
      part += packed_.decks[deck].size();
    }
    layout_.height = y + (packed_.decks.empty() ? 0 : kPad - kPartGap);
    layout_.decks = static_cast<int>(packed_.decks.size());
    return std::move(layout_);
  }

 private:
  // Returns where the first deck begins.
  double LayOutHeader() {
    std::vector<std::string>& lines = layout_.facts;
    const double room = layout_.width - 2 * kPad;
    lines = Wrap(HostFacts(host_), kFactFont, room);
    for (std::string& line : Wrap(WayFacts(host_), kFactFont, room)) {
      lines.push_back(std::move(line));
    }
    const double y = kNameLine + kLine * static_cast<double>(lines.size()) + kHeaderGap;
    if (ranks_.cores.empty()) return y;
    double width = kCoreBadge;
    for (const RankLabel* rank : ranks_.cores) {
      width = std::max(width, TextWidth(rank->text, kBadgeFont) + 2 * kTilePad);
    }
    width = std::min(width, room);
    const auto row = static_cast<size_t>((room + kBadgeGap) / (width + kBadgeGap));
    for (size_t i = 0; i < ranks_.cores.size(); ++i) {
      layout_.core_badges.push_back({kPad + (width + kBadgeGap) * static_cast<double>(i % row),
                                     y + (kBadge + kBadgeGap) * static_cast<double>(i / row), width,
                                     kBadge});
    }
    return layout_.core_badges.back().bottom() + kPartGap;
  }

  // x and widths of a deck, whose parts share what it is narrower than the card.
  void PlaceAcross(const Packing::Deck& deck) {
    const double spare =
        (layout_.width - 2 * kPad - WidthOf(deck)) / static_cast<double>(deck.size());
    double x = kPad;
    for (const Packing::Part& plan : deck) {
      HostLayout::Part& part = layout_.parts.emplace_back();
      part.numa_node = plan.numa_node;
      x += plan.gap;
      part.box = {x, 0, plan.width + spare, 0};
      part.lines =
          Wrap(NodeFacts(host_, plan.numa_node), kSmallFont, part.box.width - 2 * kPartPad);
      if (!IsBare(plan)) part.lines.resize(1);
      double inner = x + kPartPad + spare / 2;
      for (const Packing::Unit& unit : plan.units) {
        PlaceUnit(unit, inner);
        inner += unit.width + kTileGap;
      }
      if (packed_.bridges && !plan.gpus.empty()) {
        part.bridge = {x + kPartPad, 0, part.box.width - 2 * kPartPad, kBar};
        part.bridge_words = BridgeWords(plan);
      }
      x += part.box.width;
    }
  }

  void PlaceUnit(const Packing::Unit& unit, double x) {
    for (const int nic : unit.nics) {
      layout_.nics[nic] = {x, 0, unit.width, packed_.nic_height};
      layout_.parts.back().nics.push_back(nic);
    }
    if (unit.group < 0) return;
    HostLayout::Group& group = layout_.groups[unit.group];
    group.part = static_cast<int>(layout_.parts.size()) - 1;
    double width = unit.width;
    if (group.devices.longest != Path::kSelf) {
      group.frame = {x, 0, width, 0};
      x += kFrame;
      width -= 2 * kFrame;
      group.bar = {x, 0, width, kBar};
      const Connection connection = {group.devices.longest};
      std::vector<std::string> facts = {std::string(PathWords(connection.path)),
                                        ToString(connection)};
      if (group.devices.gpus.size() > 1) facts.push_back(RateOf(host_, connection));
      if (facts.back().empty()) facts.pop_back();
      group.words = Wrap(facts, kSmallFont, width - kTilePad).front();
    }
    for (size_t i = 0; i < group.devices.gpus.size(); ++i) {
      layout_.gpus[group.devices.gpus[i]] = {x + static_cast<double>(i) * (kTile + kTileGap), 0,
                                             kTile, packed_.tile_height};
    }
    const std::vector<int>& nics = group.devices.nics;
    const size_t row = std::min<size_t>(NicsOfRow(group.devices), nics.size());
    for (size_t i = 0; i < nics.size(); ++i) {
      const double each = (width + kNicGap) / static_cast<double>(row);
      layout_.nics[nics[i]] = {x + static_cast<double>(i % row) * each, 0, each - kNicGap,
                               packed_.nic_height};
    }
  }

  // The ways between devices of a part over host bridges. Rates are of those between GPUs.
  std::string BridgeWords(const Packing::Part& plan) const {
    std::set<Path> of_gpus, of_nics;
    for (const int i : plan.gpus) {
      for (const int j : plan.gpus) of_gpus.insert(of_.OfGpus(i, j).path);
      for (const Packing::Unit& unit : plan.units) {
        const std::vector<int>& nics =
            unit.group < 0 ? unit.nics : layout_.groups[unit.group].devices.nics;
        for (const int nic : nics) of_nics.insert(of_.OfGpuAndNic(i, nic).path);
      }
    }
    std::vector<std::string> facts;
    for (const Path path : {Path::kBridge, Path::kNode, Path::kSystem}) {
      if (!of_gpus.contains(path) && !of_nics.contains(path)) continue;
      if (facts.empty()) facts.push_back(std::string(PathWords(path)));
      facts.push_back(of_gpus.contains(path) ? ConnectionWords(host_, {path})
                                             : std::string(PathName(path)));
    }
    if (facts.empty()) return std::string(PathWords(Path::kBridge));
    return absl::StrJoin(facts, " · ");
  }

  // The x of the end at `gpu` of its lane to `other`. Far ends stand inside near ones, so that
  // lanes of a GPU do not cross.
  double PortOf(int gpu, int other) const {
    const double here = layout_.gpus[gpu].x;
    const auto before = [&](int a, int b) {
      const double to_a = layout_.gpus[a].x - here, to_b = layout_.gpus[b].x - here;
      return (to_a < 0) != (to_b < 0) ? to_a < 0 : to_a > to_b;
    };
    std::vector<int> others = packed_.lanes[gpu];
    std::sort(others.begin(), others.end(), before);
    const auto port = std::find(others.begin(), others.end(), other) - others.begin();
    const double middle = static_cast<double>(others.size() - 1) / 2;
    return layout_.gpus[gpu].middle_x() + kPort * (static_cast<double>(port) - middle);
  }

  // Their y is the level, as yet.
  void LayOutLanes() {
    std::vector<Span> spans;
    for (size_t i = 0; i < of_.gpus.size(); ++i) {
      const auto gpu = static_cast<int>(i);
      for (const int other : packed_.lanes[gpu]) {
        if (layout_.gpus[gpu].x >= layout_.gpus[other].x) continue;
        spans.push_back({PortOf(gpu, other), PortOf(other, gpu)});
        layout_.lanes.push_back({.connection = of_.OfGpus(gpu, other)});
      }
    }
    const std::vector<int> levels = LevelsOf(spans, kPort / 2);
    bool all_fit = true;
    for (size_t i = 0; i < spans.size(); ++i) {
      HostLayout::Lane& lane = layout_.lanes[i];
      lane.from.x = spans[i].left;
      lane.to.x = spans[i].right;
      lane.y = levels[i];
      std::vector<double> crossings;
      for (size_t j = 0; j < spans.size(); ++j) {
        if (levels[j] <= levels[i]) continue;
        crossings.push_back(spans[j].left);
        crossings.push_back(spans[j].right);
      }
      const Span gap =
          WidestGap({spans[i].left + kPort / 2, spans[i].right - kPort / 2}, crossings);
      lane.label = {gap.left, 0, gap.right - gap.left, kLaneLabel};
      lane.words = ConnectionWords(host_, lane.connection);
      all_fit &= TextWidth(lane.words, kLaneFont) + kTilePad + 4 <= lane.label.width;
      lane_zone_ = std::max(lane_zone_, kLanesPad + kLaneGap * (levels[i] + 1));
    }
    for (HostLayout::Lane& lane : layout_.lanes) {
      if (!all_fit) lane.words = ToString(lane.connection);
      const double width = TextWidth(lane.words, kLaneFont) + kTilePad;
      lane.label.x = lane.label.middle_x() - width / 2;
      lane.label.width = width;
    }
  }

  // Their y is the level, as yet.
  void LayOutBars() {
    std::vector<bool> begun(packed_.meshes.size());
    for (size_t deck = 0; deck < packed_.decks.size(); ++deck) {
      std::vector<Span> spans;
      const size_t first = layout_.bars.size();
      for (size_t mesh = 0; mesh < packed_.meshes.size(); ++mesh) {
        HostLayout::MeshBar bar = {.deck = static_cast<int>(deck)};
        Span span = {layout_.width, 0};
        for (const Packing::Part& part : packed_.decks[deck]) {
          for (const int gpu : part.gpus) {
            const std::vector<int>& gpus = packed_.meshes[mesh].gpus;
            if (std::find(gpus.begin(), gpus.end(), gpu) == gpus.end()) continue;
            bar.gpus.push_back(gpu);
            span.left = std::min(span.left, layout_.gpus[gpu].x);
            span.right = std::max(span.right, layout_.gpus[gpu].right());
          }
        }
        if (bar.gpus.empty()) continue;
        bar.again = begun[mesh];
        begun[mesh] = true;
        bar.joint = kJoint - 3 * static_cast<double>(mesh % 3);
        bar.words = MeshWords(host_, packed_.meshes[mesh]);
        bar.box = {span.left, 0, span.right - span.left, kMeshBar};
        layout_.bars.push_back(std::move(bar));
        spans.push_back(span);
      }
      const std::vector<int> levels = LevelsOf(spans, 0);
      for (size_t i = 0; i < levels.size(); ++i) {
        layout_.bars[first + i].box.y = levels[i];
        mesh_zone_ = std::max(mesh_zone_, (kMeshBar + kMeshGap) * (levels[i] + 1));
      }
    }
  }

  // Returns the lower edge of the deck, which begins at `y`.
  double PlaceDown(size_t index, size_t first_part, double y) {
    const Packing::Deck& deck = packed_.decks[index];
    if (std::all_of(deck.begin(), deck.end(), IsBare)) return PlaceBareDown(deck, first_part, y);
    const double meshes = y + kPartHeader;
    for (HostLayout::MeshBar& bar : layout_.bars) {
      if (bar.deck == static_cast<int>(index)) {
        bar.box.y = meshes + bar.box.y * (kMeshBar + kMeshGap);
      }
    }
    const double frames = meshes + mesh_zone_ + lane_zone_;
    const double tiles = frames + (packed_.switches ? kFrame : 0);
    for (HostLayout::Lane& lane : layout_.lanes) {
      lane.y = frames - kLanesPad - lane.y * kLaneGap;
      lane.from.y = lane.to.y = tiles;
      lane.label.y = lane.y - kLaneLabel / 2;
    }
    const double bottom = tiles + packed_.DevicesHeight();
    const double bridge = bottom + (packed_.switches ? kFrame : 0) + kRowGap;
    const double end = packed_.bridges ? bridge + kBar : bridge - kRowGap;
    for (size_t i = 0; i < deck.size(); ++i) {
      HostLayout::Part& part = layout_.parts[first_part + i];
      part.box.y = y;
      part.box.height = end + kPartPad - y;
      part.bridge.y = bridge;
      for (const Packing::Unit& unit : deck[i].units) PlaceUnitDown(unit, tiles, bottom);
      if (i > 0) PlaceSystemLink(deck[i - 1], deck[i], layout_.parts[first_part + i - 1], part);
    }
    return end + kPartPad;
  }

  double PlaceBareDown(const Packing::Deck& deck, size_t first_part, double y) {
    double end = y;
    for (size_t i = 0; i < deck.size(); ++i) {
      HostLayout::Part& part = layout_.parts[first_part + i];
      const double below = y + kPartHeader + kLine * static_cast<double>(part.lines.size() - 1);
      part.box.y = y;
      end = std::max(end, below);
      for (int cpu = 0; cpu < deck[i].cpus; ++cpu) {
        part.cpus.push_back({part.box.x + kPartPad + (cpu % kCpusOfRow) * (kCpu + kCpuGap),
                             below + (cpu / kCpusOfRow) * (kCpu + kCpuGap), kCpu, kCpu});
        end = std::max(end, part.cpus.back().bottom() + kPartPad);
      }
    }
    for (size_t i = 0; i < deck.size(); ++i) layout_.parts[first_part + i].box.height = end - y;
    return end;
  }

  void PlaceUnitDown(const Packing::Unit& unit, double tiles, double bottom) {
    const double each = packed_.nic_height + kNicGap;
    for (size_t i = 0; i < unit.nics.size(); ++i) {
      layout_.nics[unit.nics[i]].y =
          bottom + kNicGap - each * static_cast<double>(unit.nics.size() - i);
    }
    if (unit.group < 0) return;
    HostLayout::Group& group = layout_.groups[unit.group];
    group.frame.y = tiles - kFrame;
    group.frame.height = bottom - tiles + 2 * kFrame;
    group.bar.y = tiles + packed_.tile_height + kRowGap;
    for (const int gpu : group.devices.gpus) layout_.gpus[gpu].y = tiles;
    const double nics =
        tiles + packed_.tile_height + kRowGap + (packed_.switches ? kBar + kRowGap : 0);
    const int row = NicsOfRow(group.devices);
    for (size_t i = 0; i < group.devices.nics.size(); ++i) {
      layout_.nics[group.devices.nics[i]].y = nics + each * static_cast<double>(i / row);
    }
  }

  void PlaceSystemLink(const Packing::Part& left, const Packing::Part& right,
                       const HostLayout::Part& from, const HostLayout::Part& to) {
    const Connection* const connection = Between(of_, left, right);
    if (connection == nullptr) return;
    HostLayout::SystemLink link = {.from = {from.bridge.right(), from.bridge.middle_y()},
                                   .to = {to.bridge.x, to.bridge.middle_y()}};
    link.lines.push_back(ToString(*connection));
    if (std::string rate = RateOf(host_, *connection); !rate.empty()) {
      link.lines.push_back(std::move(rate));
    }
    const double height = 6 + 13 * static_cast<double>(link.lines.size());
    link.label = {(from.box.right() + to.box.x - kSystemLabel) / 2, link.from.y - height / 2,
                  kSystemLabel, height};
    layout_.system_links.push_back(std::move(link));
  }

  const Host& host_;
  const Interconnect& of_;
  const HostRanks& ranks_;
  const Packing packed_;
  double mesh_zone_ = 0;  // heights
  double lane_zone_ = 0;
  HostLayout layout_;
};

}  // namespace

HostLayout LayOut(const Host& host, const HostRanks& ranks) { return Layouter(host, ranks).Run(); }

}  // namespace skein::topology::draw

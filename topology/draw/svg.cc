#include "topology/draw/svg.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/picture.h"
#include "base/printable.h"
#include "topology/draw/canvas.h"
#include "topology/draw/host_card.h"
#include "topology/draw/host_layout.h"
#include "topology/draw/measures.h"
#include "topology/draw/packing.h"
#include "topology/draw/shape.h"
#include "topology/draw/words.h"

namespace skein::topology {
namespace {

using namespace draw;  // NOLINT

// All in pixels.
constexpr double kMargin = 24;
constexpr double kTop = 58;  // the first line of the summary
constexpr double kSummaryLine = 16;
constexpr double kSpine = 26;  // left of the cards, where fabrics meet
constexpr double kCardGap = 18;
constexpr double kMostRow = 1300;  // of several cards
constexpr double kFabricGap = 20;  // between cards and fabric
constexpr double kFabric = 28;
constexpr double kLeftOut = 44;
constexpr Font kTitleFont = {18, true};
constexpr Font kSummaryFont = {12, false};

constexpr const char* kStyle = R"(<style>
text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, "DejaVu Sans", sans-serif; fill: #1f2328 }
.soft { fill: #59636e }
.page { fill: #ffffff; stroke: #d1d9e0 }
.host { fill: #f6f8fa; stroke: #c3ccd5 }
.node { fill: #ffffff; stroke: #d1d9e0 }
.group { fill: #f3f6f9; stroke: #c3ccd5; stroke-dasharray: 4 3 }
.gpu { fill: #eefaf3; stroke: #2a7a4b; stroke-width: 1.2 }
.nic { fill: #eaf4ff; stroke: #3568b0 }
.cpu { fill: #b9d3f3 }
.switch { fill: #d8dee4 }
.bridge { fill: #c3ccd5 }
.system { fill: #fff4e5; stroke: #b04f00 }
.mesh { fill: #2a7a4b }
.links { fill: #ffffff; stroke: #2a7a4b; stroke-width: 0.8 }
.fabric { fill: #3568b0 }
.left-out { fill: none; stroke: #818b98; stroke-dasharray: 5 4 }
.on-mesh, .on-fabric, .on-badge { fill: #ffffff }
.on-links { fill: #1d5c38 }
path { fill: none }
.pcie { stroke: #818b98 }
.lane { stroke: #2a7a4b }
.system-line { stroke: #b04f00 }
.to-fabric { stroke: #3568b0 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.soft { fill: #9aa4af }
.page { fill: #0d1117; stroke: #30363d }
.host { fill: #151b23; stroke: #3d444d }
.node { fill: #0d1117; stroke: #30363d }
.group { fill: #141a21; stroke: #3d444d }
.gpu { fill: #11261b; stroke: #3f9d68 }
.nic { fill: #12223a; stroke: #5b8fd9 }
.cpu { fill: #2f5486 }
.switch { fill: #30363d }
.bridge { fill: #3d444d }
.system { fill: #2b1d0e; stroke: #d9822b }
.links { fill: #0d1117; stroke: #3f9d68 }
.on-links { fill: #7fd3a3 }
.lane { stroke: #3f9d68 }
.system-line { stroke: #d9822b }
.to-fabric { stroke: #5b8fd9 }
}
</style>
)";

// Cards beside each other, or a strip for those that are left out.
struct Row {
  std::vector<const ShownHost*> cards;
  double width = 0;
  double height = 0;
};

class Picture {
 public:
  Picture(const Topology& topology, absl::Span<const RankLabel> ranks, std::string_view title)
      : topology_(topology),
        title_(title.empty() ? topology.name : std::string(title)),
        shown_(HostsToShow(topology)),
        ranks_(RanksOf(topology, ranks)) {
    if (title_.empty()) title_ = "Topology";
    for (const ShownHost& shown : shown_) {
      layouts_.push_back(shown.host < 0 ? HostLayout{}
                                        : LayOut(topology.hosts[shown.host], ranks_[shown.host]));
    }
    fabric_ = topology.hosts.size() > 1;
    left_ = kMargin + (fabric_ ? kSpine : 0);
    MakeRows();
    summary_ = Wrap(TopologyFacts(topology), kSummaryFont, left_ + width_ - kMargin);
    top_ = kTop + kSummaryLine * static_cast<double>(summary_.size());
  }

  std::string Draw() && {
    const Box page = {0.5, 0.5, left_ + width_ + kMargin - 1, HeightOf() - 1};
    canvas_.Open("page", page, 10);
    canvas_.Text({kTitleFont}, {kMargin, 38}, page.width - 2 * kMargin, title_);
    double line = kTop;
    for (const std::string& facts : summary_) {
      canvas_.Text({kSummaryFont, Anchor::kStart, "soft"}, {kMargin, line},
                   page.width - 2 * kMargin, facts);
      line += kSummaryLine;
    }
    if (fabric_) DrawSpine();
    double y = top_;
    for (const Row& row : rows_) y = DrawRow(row, y);
    canvas_.MoveTo({});
    canvas_.Close();
    const std::string label = EscapeXml(
        Printable(absl::StrCat(title_, ": ", absl::StrJoin(TopologyFacts(topology_), " · "))));
    const std::string size =
        absl::StrCat(std::ceil(page.width + 1), "\" height=\"", std::ceil(page.height + 1));
    return absl::StrCat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", size, "\" viewBox=\"0 0 ",
        std::ceil(page.width + 1), " ", std::ceil(page.height + 1), "\" role=\"img\" aria-label=\"",
        label, "\">\n<title>", label, "</title>\n", kStyle, std::move(canvas_).Take(), "</svg>\n");
  }

 private:
  const HostLayout& LayoutOf(const ShownHost* shown) const {
    return layouts_[shown - shown_.data()];
  }

  void MakeRows() {
    double widest = 0;
    for (const HostLayout& layout : layouts_) widest = std::max(widest, layout.width);
    const double most = std::max(widest, kMostRow);
    bool open = false;
    for (const ShownHost& shown : shown_) {
      const HostLayout& layout = LayoutOf(&shown);
      const bool strip = shown.host < 0;
      if (!open || strip || rows_.back().width + kCardGap + layout.width > most) {
        rows_.push_back({.width = -kCardGap, .height = strip ? kLeftOut : 0});
      }
      Row& row = rows_.back();
      row.cards.push_back(&shown);
      row.width += kCardGap + layout.width;
      row.height = std::max(row.height, layout.height);
      width_ = std::max(width_, row.width);
      open = !strip;
    }
  }

  static bool Strip(const Row& row) { return row.cards.front()->host < 0; }

  double BelowRow(const Row& row) const {
    return fabric_ && !Strip(row) ? kFabricGap + kFabric + kCardGap : kCardGap;
  }

  double HeightOf() const {
    double height = top_ + kMargin - kCardGap;
    for (const Row& row : rows_) height += row.height + BelowRow(row);
    return height;
  }

  // Joins the fabric's bars, left of the cards.
  void DrawSpine() {
    double y = top_, first = -1, last = -1;
    for (const Row& row : rows_) {
      if (!Strip(row)) {
        last = y + row.height + kFabricGap + kFabric / 2;
        if (first < 0) first = last;
      }
      y += row.height + BelowRow(row);
    }
    if (last > first) {
      const double x = kMargin + 6;
      canvas_.Line("to-fabric", {{left_ + 20, first}, {x, first}, {x, last}, {left_ + 20, last}},
                   5);
    }
  }

  // Returns where the next row begins.
  double DrawRow(const Row& row, double y) {
    canvas_.MoveTo({left_, y});
    if (Strip(row)) {
      DrawStrip(*row.cards.front());
      return y + row.height + BelowRow(row);
    }
    double x = left_;
    for (const ShownHost* shown : row.cards) {
      canvas_.MoveTo({x, y});
      const double fabric_y = fabric_ ? row.height + kFabricGap : -1;
      DrawHost(topology_.hosts[shown->host], ranks_[shown->host], LayoutOf(shown), fabric_y,
               canvas_);
      x += LayoutOf(shown).width + kCardGap;
    }
    canvas_.MoveTo({left_, y});
    if (fabric_) {
      const Box bar = {0, row.height + kFabricGap, width_, kFabric};
      const std::string words = FabricWords(topology_.fabric);
      canvas_.Label("fabric", bar, 6, {12, true}, words, words);
    }
    return y + row.height + BelowRow(row);
  }

  void DrawStrip(const ShownHost& shown) {
    int64_t ranks = 0;
    for (const int host : shown.left_out) ranks += CountOf(ranks_[host]);
    const std::string words = absl::StrJoin(LeftOutFacts(topology_, shown, ranks), " · ");
    canvas_.Label("left-out", {0, 0, width_, kLeftOut}, 10, {13, true}, words, words);
  }

  const Topology& topology_;
  std::string title_;
  const std::vector<ShownHost> shown_;
  const std::vector<HostRanks> ranks_;
  std::vector<HostLayout> layouts_;  // [shown_]
  bool fabric_ = false;
  std::vector<std::string> summary_;  // lines
  double left_ = 0;
  double top_ = 0;
  double width_ = 0;  // of the rows
  std::vector<Row> rows_;
  Canvas canvas_;
};

}  // namespace

std::string TopologySvg(const Topology& topology, absl::Span<const RankLabel> ranks,
                        std::string_view title) {
  return Picture(topology, ranks, title).Draw();
}

}  // namespace skein::topology

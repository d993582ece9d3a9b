#include "topology/draw/host_card.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/picture.h"
#include "topology/draw/measures.h"
#include "topology/draw/words.h"

namespace skein::topology::draw {
namespace {

constexpr double kUplink = 14;  // of a group to its bridge, from its left
constexpr double kRound = 5;

void DrawBadge(const RankLabel& rank, const Box& box, Canvas& canvas) {
  canvas.Label("badge", box, kBadge / 2, kBadgeFont, rank.text, rank.text, SvgColour(rank.group));
}

class Card {
 public:
  Card(const Host& host, const HostRanks& ranks, const HostLayout& layout, double fabric_y,
       Canvas& canvas)
      : host_(host),
        of_(host.interconnect),
        ranks_(ranks),
        layout_(layout),
        fabric_y_(fabric_y),
        canvas_(canvas) {}

  // Lines come before what they lead to, which so lies over them.
  void Draw() {
    canvas_.Open("host", {0, 0, layout_.width, layout_.height}, 10, host_.name);
    DrawHeader();
    for (const HostLayout::Part& part : layout_.parts) DrawPart(part);
    for (const HostLayout::Group& group : layout_.groups) {
      if (group.frame.width > 0) canvas_.Rect("group", group.frame, 7);
    }
    DrawFabricLines();
    for (const HostLayout::Group& group : layout_.groups) DrawPcieLines(group);
    DrawUplinks();
    DrawLanes();
    DrawBars();
    for (const HostLayout::Group& group : layout_.groups) {
      if (group.bar.width > 0) canvas_.Label("switch", group.bar, kRound, kSmallFont, group.words);
    }
    for (const HostLayout::Part& part : layout_.parts) {
      if (part.bridge.width > 0) {
        canvas_.Label("bridge", part.bridge, kRound, kSmallFont, part.bridge_words);
      }
    }
    DrawSystemLinks();
    for (size_t gpu = 0; gpu < of_.gpus.size(); ++gpu) DrawGpu(gpu);
    for (size_t nic = 0; nic < of_.nics.size(); ++nic) DrawNic(nic);
    for (size_t i = 0; i < ranks_.cores.size(); ++i) {
      DrawBadge(*ranks_.cores[i], layout_.core_badges[i], canvas_);
    }
    canvas_.Close();
  }

 private:
  void DrawHeader() {
    const double room = layout_.width - 2 * kPad;
    canvas_.Text({kNameFont}, {kPad, kNameLine}, room, host_.name);
    double y = kNameLine;
    for (const std::string& line : layout_.facts) {
      y += kLine;
      canvas_.Text({kFactFont, Anchor::kStart, "soft"}, {kPad, y + 2}, room, line);
    }
  }

  void DrawPart(const HostLayout::Part& part) {
    canvas_.Open("node", part.box, 8, absl::StrJoin(NodeFacts(host_, part.numa_node), " · "));
    double y = part.box.y + kPartLine;
    for (const std::string& line : part.lines) {
      canvas_.Text({kSmallFont, Anchor::kStart, "soft"}, {part.box.x + kPartPad, y},
                   part.box.width - 2 * kPartPad, line);
      y += kLine;
    }
    for (const Box& cpu : part.cpus) canvas_.Rect("cpu", cpu, 2);
    canvas_.Close();
  }

  // On hosts of several decks others are in the way of NICs.
  void DrawFabricLines() {
    if (fabric_y_ < 0) return;
    if (of_.nics.empty() || layout_.decks > 1) {
      const double x = layout_.width / 2;
      canvas_.Line("to-fabric", {{x, layout_.height}, {x, fabric_y_}}, 3);
      return;
    }
    for (const Box& nic : layout_.nics) {
      canvas_.Line("to-fabric", {{nic.middle_x(), nic.bottom()}, {nic.middle_x(), fabric_y_}});
    }
  }

  void DrawPcieLines(const HostLayout::Group& group) {
    if (group.bar.width == 0) return;
    for (const int gpu : group.devices.gpus) {
      const Box& tile = layout_.gpus[gpu];
      canvas_.Line("pcie", {{tile.middle_x(), tile.bottom()}, {tile.middle_x(), group.bar.y}});
    }
    for (const int nic : group.devices.nics) {
      const Box& chip = layout_.nics[nic];
      canvas_.Line("pcie", {{chip.middle_x(), group.bar.bottom()}, {chip.middle_x(), chip.y}});
    }
  }

  // Groups, single GPUs and NICs to the host bridge below.
  void DrawUplinks() {
    for (const HostLayout::Part& part : layout_.parts) {
      for (const int nic : part.nics) {
        const Box& chip = layout_.nics[nic];
        const double x = chip.x + kUplink;
        if (part.bridge.width > 0) canvas_.Line("pcie", {{x, chip.bottom()}, {x, part.bridge.y}});
      }
    }
    for (const HostLayout::Group& group : layout_.groups) {
      const Box& bridge = layout_.parts[group.part].bridge;
      if (bridge.width == 0) continue;
      const bool framed = group.frame.width > 0;
      const Box& from = framed ? group.frame : layout_.gpus[group.devices.gpus.front()];
      const double x = framed ? from.x + kUplink : from.middle_x();
      canvas_.Line("pcie", {{x, from.bottom()}, {x, bridge.y}});
    }
  }

  void DrawLanes() {
    for (const HostLayout::Lane& lane : layout_.lanes) {
      const double thickness = std::min(0.8 + 0.8 * lane.connection.nvlinks, 4.0);
      canvas_.Line("lane", {lane.from, {lane.from.x, lane.y}, {lane.to.x, lane.y}, lane.to},
                   thickness);
    }
    for (const HostLayout::Lane& lane : layout_.lanes) {
      canvas_.Label("links", lane.label, kLaneLabel / 2, kLaneFont, lane.words);
    }
  }

  void DrawBars() {
    for (size_t i = 0; i < layout_.bars.size(); ++i) {
      const HostLayout::MeshBar& bar = layout_.bars[i];
      for (const int gpu : bar.gpus) {
        const Box& tile = layout_.gpus[gpu];
        canvas_.Line("lane", {{tile.middle_x(), bar.box.middle_y()}, {tile.middle_x(), tile.y}}, 3);
      }
      if (!bar.again) continue;
      const auto before =
          std::find_if(layout_.bars.rend() - static_cast<ptrdiff_t>(i), layout_.bars.rend(),
                       [&](const HostLayout::MeshBar& other) { return other.joint == bar.joint; });
      canvas_.Line("lane",
                   {{bar.box.x, bar.box.middle_y()},
                    {bar.joint, bar.box.middle_y()},
                    {bar.joint, before->box.middle_y()},
                    {before->box.x, before->box.middle_y()}},
                   3);
    }
    for (const HostLayout::MeshBar& bar : layout_.bars) {
      canvas_.Label("mesh", bar.box, kRound, {kFactFont.size, true}, bar.words, bar.words);
    }
  }

  void DrawSystemLinks() {
    for (const HostLayout::SystemLink& link : layout_.system_links) {
      canvas_.Line("system-line", {link.from, link.to}, 4);
      canvas_.Open("system", link.label, kRound);
      double y = link.label.y + 12.5;
      for (const std::string& line : link.lines) {
        canvas_.Text({kSmallFont, Anchor::kMiddle, "on-system"}, {link.label.middle_x(), y},
                     link.label.width - kTilePad, line);
        y += 13;
      }
      canvas_.Close();
    }
  }

  void DrawGpu(size_t index) {
    const Gpu& gpu = of_.gpus[index];
    const Box& box = layout_.gpus[index];
    const std::vector<const RankLabel*>& ranks = ranks_.gpus[index];
    std::string tooltip = gpu.name;
    for (const std::string& fact : {gpu.model, gpu.bus_id}) {
      if (!fact.empty()) absl::StrAppend(&tooltip, ", ", fact);
    }
    canvas_.Open("gpu", box, 6, tooltip);
    const double room = box.width - 2 * kTilePad;
    const std::string memory = gpu.memory_bytes > 0 ? ShortBytes(gpu.memory_bytes) : "";
    const double memory_width = TextWidth(memory, kSmallFont);
    double y = box.y + 18;
    canvas_.Text({kTileFont}, {box.x + kTilePad, y}, room - memory_width - 4, gpu.name);
    canvas_.Text({kSmallFont, Anchor::kEnd, "soft"}, {box.right() - kTilePad, y}, room, memory);
    if (!gpu.model.empty()) {
      y += kLine;
      canvas_.Text({kSmallFont}, {box.x + kTilePad, y}, room, ShortModel(gpu.model));
    }
    if (!gpu.rates.reads.empty()) {
      y += kLine;
      canvas_.Text({kSmallFont, Anchor::kStart, "soft"}, {box.x + kTilePad, y}, room,
                   absl::StrCat("reads ", ReadWords(gpu.rates)));
    }
    double badge = box.bottom() - (kBadge + kBadgeGap) * static_cast<double>(ranks.size()) - 1;
    for (const RankLabel* rank : ranks) {
      DrawBadge(*rank, {box.x + kTilePad - 2, badge, room + 4, kBadge}, canvas_);
      badge += kBadge + kBadgeGap;
    }
    canvas_.Close();
  }

  void DrawNic(size_t index) {
    const Nic& nic = of_.nics[index];
    const Box& box = layout_.nics[index];
    const bool other_name = !nic.device.empty() && nic.device != nic.name;
    const std::string name = other_name ? absl::StrCat(nic.name, " · ", nic.device) : nic.name;
    const std::string words = NicWords(nic);
    canvas_.Open("nic", box, kRound, absl::StrCat(name, words.empty() ? "" : ", ", words));
    const double room = box.width - kTilePad;
    const double first = words.empty() ? box.middle_y() + 3.6 : box.middle_y() - 3;
    canvas_.Text({{kSmallFont.size, true}, Anchor::kMiddle}, {box.middle_x(), first}, room, name);
    canvas_.Text({kSmallFont, Anchor::kMiddle, "soft"}, {box.middle_x(), first + 13}, room, words);
    canvas_.Close();
  }

  const Host& host_;
  const Interconnect& of_;
  const HostRanks& ranks_;
  const HostLayout& layout_;
  const double fabric_y_;
  Canvas& canvas_;
};

}  // namespace

void DrawHost(const Host& host, const HostRanks& ranks, const HostLayout& layout, double fabric_y,
              Canvas& canvas) {
  Card(host, ranks, layout, fabric_y, canvas).Draw();
}

}  // namespace skein::topology::draw

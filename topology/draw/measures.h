// The sizes of what stands on a card, in pixels.
#pragma once

#include "topology/draw/text_width.h"

namespace skein::topology::draw {

inline constexpr Font kNameFont = {14, true};
inline constexpr Font kTileFont = {12, true};
inline constexpr Font kFactFont = {11, false};
inline constexpr Font kSmallFont = {10, false};
inline constexpr Font kBadgeFont = {10.5, true};
inline constexpr Font kLaneFont = {9.5, false};

inline constexpr double kPad = 16;        // between a card's border and what is on it
inline constexpr double kNameLine = 26;   // the base line of a card's name
inline constexpr double kLine = 15;       // of text to the next
inline constexpr double kHeaderGap = 16;  // below the text of a card
inline constexpr double kRowGap = 10;

inline constexpr double kPartPad = 10;  // of a NUMA node
inline constexpr double kPartLine = 17;
inline constexpr double kPartHeader = 26;
inline constexpr double kPartGap = 14;
inline constexpr double kSystemGap = 96;  // where a link is drawn between parts

inline constexpr double kTile = 120;  // the width of a GPU
inline constexpr double kTileHeader = 26;
inline constexpr double kTilePad = 8;
inline constexpr double kTileGap = 8;
inline constexpr double kFrame = 7;  // around a PCIe group
inline constexpr double kNic = 36;
inline constexpr double kBareNic = 22;  // where only its name is told
inline constexpr double kNicGap = 5;
inline constexpr double kLeastNic = 108;
inline constexpr double kBar = 18;  // a switch, a bridge
inline constexpr double kBadge = 17;
inline constexpr double kBadgeGap = 4;

inline constexpr double kMeshBar = 24;
inline constexpr double kMeshGap = 8;
inline constexpr double kLaneGap = 17;
inline constexpr double kLaneLabel = 13;
inline constexpr double kLanesPad = 12;  // above the tiles
inline constexpr double kPort = 18;      // between two lanes of a GPU

inline constexpr double kCpu = 9;
inline constexpr double kCpuGap = 3;
inline constexpr int kCpusOfRow = 16;

}  // namespace skein::topology::draw

// Draws the card of a host.
#pragma once

#include "topology/draw/canvas.h"
#include "topology/draw/host_layout.h"
#include "topology/draw/packing.h"
#include "topology/topology.h"

namespace skein::topology::draw {

// At the canvas's origin. `fabric_y`, from there, is where lines of the NICs go to; negative:
// nowhere.
void DrawHost(const Host& host, const HostRanks& ranks, const HostLayout& layout, double fabric_y,
              Canvas& canvas);

}  // namespace skein::topology::draw

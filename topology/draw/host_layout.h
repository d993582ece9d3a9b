// Where on its card each thing of a host stands. Pure; any thread.
//
//   name, facts, rates                  | the header
//   ranks on cores                      |
//   +- NUMA 0 ----+   +- NUMA 1 ----+   | a deck of parts, one for each NUMA node; hosts of many
//   |  ======= NVSwitch ==========  |   | GPUs have several decks
//   |  GPU  GPU   |   |  GPU  GPU   |   |
//   |  -switch-   |   |  -switch-   |   | PCIe groups, their switches and NICs
//   |    NIC      |   |    NIC      |   |
//   |  -bridge--  |SYS|  --bridge-  |   | where PCIe lies between GPUs
//   +-------------+   +-------------+   |
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/draw/canvas.h"
#include "topology/draw/packing.h"
#include "topology/draw/shape.h"
#include "topology/topology.h"

namespace skein::topology::draw {

struct HostLayout {
  struct Part {
    int32_t numa_node = -1;
    Box box;
    std::vector<std::string> lines;  // of text
    std::vector<Box> cpus;           // a host's without devices
    std::vector<int> nics;           // without a group
    Box bridge;                      // no width: none
    std::string bridge_words;
  };
  struct Group {
    PcieGroup devices;
    Box frame;  // no width: none
    Box bar;    // its switch; no width: none
    std::string words;
    int part = 0;
  };
  struct MeshBar {  // NVLinks that are alike, on a deck
    Box box;
    int deck = 0;
    std::string words;
    std::vector<int> gpus;  // of the deck
    bool again = false;     // another deck has it, too, right above
    double joint = 0;       // x of the line between them
  };
  struct Lane {  // NVLinks of a pair
    Point from;  // on the tiles' upper edges
    Point to;
    double y = 0;
    Connection connection;
    Box label;
    std::string words;
  };
  struct SystemLink {  // between the bridges of two parts
    Point from;
    Point to;
    Box label;
    std::vector<std::string> lines;
  };

  double width = 0;
  double height = 0;
  int decks = 0;
  std::vector<std::string> facts;  // lines
  std::vector<Box> core_badges;    // [ranks on cores]
  std::vector<Part> parts;
  std::vector<Group> groups;
  std::vector<Box> gpus;  // [gpus]
  std::vector<Box> nics;  // [nics]
  std::vector<MeshBar> bars;
  std::vector<Lane> lanes;
  std::vector<SystemLink> system_links;
};

HostLayout LayOut(const Host& host, const HostRanks& ranks);

}  // namespace skein::topology::draw

// Interconnects as text, and what readers ask for, as tests of formats compare them.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "topology/interconnect.h"

namespace skein::topology {

// How each error ends that asks for NVLinks.
inline constexpr char kWhatToDo[] =
    ". Say how many connect each two GPUs, --nvlinks=N (0: there are none), or plan for a preset "
    "such as dgx-a100";

// The matrix of connections, a line for each device: "X NV4 PIX".
inline std::string Text(const Interconnect& of) {
  std::string text;
  for (const auto& row : of.connections) {
    std::vector<std::string> cells;
    for (const Connection& connection : row) cells.push_back(ToString(connection));
    absl::StrAppend(&text, absl::StrJoin(cells, " "), "\n");
  }
  return text;
}

}  // namespace skein::topology

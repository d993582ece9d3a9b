// A rank of a plan, as pictures of machines name it where it runs.
#pragma once

#include <cstdint>
#include <string>

namespace skein::topology {

struct RankLabel {
  int32_t host = 0;
  int32_t gpu = -1;   // of the host; -1: on its cores
  std::string text;   // "rank 3"
  int32_t group = 0;  // those of one, a replica or a stage, share a colour

  friend bool operator==(const RankLabel&, const RankLabel&) = default;
};

}  // namespace skein::topology

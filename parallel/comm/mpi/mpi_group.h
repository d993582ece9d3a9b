// Which ranks form a group, and under which tags. Private to this folder.
#pragma once

#include <string>
#include <vector>

namespace skein::comm {

struct MpiGroup {
  std::string name;
  std::vector<int> world_ranks;  // [size]
  int rank = 0;
  int context = 0;  // the same on all ranks of the group; groups that share two ranks differ in it
};

}  // namespace skein::comm

// The matrix of NVLinks in hwloc's XML.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "pugixml.hpp"
#include "topology/formats/nvlinks.h"
#include "topology/formats/xml.h"

namespace skein::topology {

// What the objects of a file are to the matrix, by their gp_index.
struct HwlocObjects {
  static constexpr int kSwitch = -1;  // an NVSwitch
  static constexpr int kOther = -2;   // a processor's package, of POWER
  std::map<int64_t, int> roles;       // one of these, or a GPU's number
  // A link of each GPU, [gpus], in MB/s as hwloc counts; 0: not known.
  std::vector<int64_t> mb_per_s_of_link;
};

// The MB/s of one link of NVIDIA's `device`, the ID of PCI; 0: not known.
int64_t HwlocMbPerSOfLink(uint32_t device);

struct HwlocNvlinks {
  pugi::xml_node matrix;   // none: the file has no such matrix
  NvlinksBetween between;  // [gpus][gpus]
  int32_t nvswitches = 0;
};
// InvalidArgument begins with "line N: ".
absl::StatusOr<HwlocNvlinks> ReadHwlocNvlinks(const XmlFile& file, const HwlocObjects& objects);

}  // namespace skein::topology

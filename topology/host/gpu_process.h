// A process that computes on a GPU, as NVML tells of it.
#pragma once

#include <cstdint>
#include <string>

namespace skein::topology {

struct GpuProcess {
  int64_t pid = 0;    // as the host numbers processes: in a container they have other numbers
  std::string name;   // of its program; empty where NVML may not tell
  int64_t bytes = 0;  // of the GPU's memory; 0 where NVML may not tell
};

}  // namespace skein::topology

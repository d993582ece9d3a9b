// What a test tells fake_nvml.cc. The library shows it as `fake_nvml`.
#pragma once

#include <cstdint>

namespace skein::topology {

struct FakeNvml {
  const char* uuid = "";
  int init_code = 0;
  int memory_code = 0;
  uint64_t total = 0, free = 0;
  uint32_t processes = 0;  // process i has pid 100 + i and i GiB; process 0's are unknown
  int inits = 0, ends = 0;
};

}  // namespace skein::topology

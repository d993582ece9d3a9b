// What a test tells fake_nvml.cc. The library shows it as `fake_nvml`.
#pragma once

#include <cstdint>

namespace skein::topology {

struct FakeNvlink {
  int active = 0;
  int kind = 0;             // of the other end: 0 is a GPU, 2 a switch
  const char* remote = "";  // bus id of the other end; empty: not supported
};

struct FakeGpu {
  const char* uuid = "";
  const char* name = "NVIDIA Fake";
  const char* bus_id = "";
  int index_code = 0;  // of finding it by its index
  int memory_code = 0;
  uint64_t total = 0, free = 0;
  uint32_t processes = 0;  // process i has pid 100 + i and i GiB; process 0's are unknown
  int mig = -1;            // -1: not supported, as of the others
  int ecc = -1;
  uint64_t corrected = 0;  // errors
  uint64_t errors_since_boot = 0, errors_ever = 0;
  uint32_t clock = 0, max_clock = 0;
  uint64_t reasons = 0;
  int links = 0;
  FakeNvlink link[18];
  int ancestor[16] = {};  // [gpus], a level; of both, that of the first one named
  int slice_of = -1;      // a GPU; this one is then found by its UUID alone
};

struct FakeNvml {
  int init_code = 0;
  int count = 1;  // of GPUs
  FakeGpu gpus[16];
  int inits = 0, ends = 0;
};

}  // namespace skein::topology

// What a test tells fake_cuda.cc, the CUDA runtime of a machine with one H200.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <string>

namespace skein::kernels::cuda {

struct FakeCuda {
  std::map<std::string, cudaError_t> codes;  // by function; others succeed
  int looks = 0;                             // at events that are not reached, before codes count
  int driver = 13000;
  int major = 9;
  size_t shared_bytes = size_t{227} << 10;  // that a block can have
  std::string name = "NVIDIA H200";
  size_t free = size_t{130} << 30, total = size_t{140} << 30;
};

FakeCuda& fake_cuda();

}  // namespace skein::kernels::cuda

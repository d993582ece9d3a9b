// Ranges of NVTX, by which profilers tell what a kernel was launched for: nsys shows them, ncu
// filters by them. Without a profiler one costs some nanoseconds.
#pragma once

#include <nvtx3/nvToolsExt.h>

namespace skein::kernels::cuda {

// What this thread does while it lives. Ranges nest.
class NvtxRange {
 public:
  // `name` is copied. No range where it is null.
  explicit NvtxRange(const char* name) : pushed_(name != nullptr) {
    if (pushed_) nvtxRangePushA(name);
  }
  ~NvtxRange() {
    if (pushed_) nvtxRangePop();
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  const bool pushed_;
};

}  // namespace skein::kernels::cuda

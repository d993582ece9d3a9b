// An opaque handle of a device's queue of work (a cudaStream_t on CUDA), so that headers outside
// the CUDA targets can pass it on. Null means: at once, on the calling thread (the CPU).
#pragma once

namespace skein {

struct Stream {
  void* handle = nullptr;
};

}  // namespace skein

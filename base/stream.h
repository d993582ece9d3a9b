// An opaque handle of a device's queue of work (a cudaStream_t on CUDA), so that headers outside
// the CUDA targets can pass it on. It is always named: nothing runs on a default stream.
#pragma once

namespace skein {

struct Stream {
  void* handle = nullptr;
};

// The CPU's only stream: work runs at once, on the calling thread.
inline constexpr Stream kHostStream{};

}  // namespace skein

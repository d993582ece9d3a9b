// What products by stream-K take of a device's memory. Pure.
#pragma once

#include <cstdint>

namespace skein::kernels::cuda {

// A block's parts of a tile: two groups of 64 weight rows, by up to 32 rows.
inline constexpr int kStreamKTileRows = 128;
inline constexpr int kStreamKGroups = 2;
inline constexpr int kStreamKPartialFloats = 64 * 32;

// All bytes are 0xff when no product runs: nothing has been left there.
constexpr int64_t StreamKWorkspaceBytes(int32_t multiprocessors) {
  return int64_t{4} * kStreamKGroups * kStreamKPartialFloats * multiprocessors;
}

}  // namespace skein::kernels::cuda

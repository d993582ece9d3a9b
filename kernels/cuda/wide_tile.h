// Which tiles of weight rows a product of up to 64 rows takes. Pure.
#pragma once

#include <array>
#include <cstdint>

namespace skein::kernels::cuda {

// Rows of a tile that there are kernels for, the most first: whole steps of 32, which are halved
// for two groups, and hold pairs of 8 gates and 8 ups. Tiles of 256 leave a ring of too few stages.
inline constexpr std::array<int32_t, 3> kWideTileRows = {224, 192, 128};
// Blocks of a cluster that share a tile.
inline constexpr std::array<int32_t, 3> kWideTileClusters = {8, 4, 2};

struct WideTile {
  int32_t rows = kWideTileRows.back();
  int32_t blocks = 1;  // of a cluster, each with a part of k; 1: no cluster
  // Of the device's multiprocessors, the share that works on average while there is work.
  double used = 0;

  bool operator==(const WideTile&) const = default;
};

// For a matrix of `n` rows of `k` columns. clusters_at_once: of each size of kWideTileClusters, how
// many run at once on the whole device. The wider a tile, the fewer times `in` is fetched from the
// L2 cache, which binds before the device's memory does: so the widest one that keeps nine in ten
// multiprocessors busy, else the one that keeps the most. Each block of a cluster has 512 columns
// of k at least, about what it fetches ahead.
WideTile ChooseWideTile(int64_t n, int64_t k, int32_t multiprocessors,
                        const std::array<int32_t, kWideTileClusters.size()>& clusters_at_once);

}  // namespace skein::kernels::cuda

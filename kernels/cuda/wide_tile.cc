#include "kernels/cuda/wide_tile.h"

#include <cstddef>

namespace skein::kernels::cuda {

WideTile ChooseWideTile(int64_t n, int64_t k, int32_t multiprocessors,
                        const std::array<int32_t, kWideTileClusters.size()>& clusters_at_once) {
  constexpr double kEnough = 0.9;
  constexpr int64_t kLeastColumns = 8 * 64;  // a ring has 6 to 9 stages of 64
  WideTile best;
  for (const int32_t rows : kWideTileRows) {
    const int64_t tiles = (n + rows - 1) / rows;
    // A block alone takes several tiles in turn, a cluster one.
    const int64_t turns = (tiles + multiprocessors - 1) / multiprocessors;
    WideTile tile = {rows, 1, static_cast<double>(tiles) / (turns * multiprocessors)};
    for (size_t i = 0; i < kWideTileClusters.size(); ++i) {
      const int32_t blocks = kWideTileClusters[i];
      if (tiles > clusters_at_once[i] || tiles * blocks > multiprocessors) continue;
      if (k < blocks * kLeastColumns) continue;
      tile.blocks = blocks;
      tile.used = static_cast<double>(tiles * blocks) / multiprocessors;
      break;
    }
    if (tile.used > best.used) best = tile;
    if (tile.used >= kEnough) break;
  }
  return best;
}

}  // namespace skein::kernels::cuda

#include "kernels/cuda/product_kind.h"

#include "kernels/cuda/few_rows_linear.h"
#include "kernels/cuda/forms.h"
#include "kernels/cuda/stream_k_linear.h"
#include "kernels/cuda/stream_k_sizes.h"
#include "kernels/cuda/wide_tile_linear.h"

namespace skein::kernels::cuda {

ProductKind KindOfProduct(int64_t rows, const WeightSpec& weight, bool deterministic,
                          int32_t multiprocessors) {
  if (deterministic) return ProductKind::kBatchInvariant;
  if (!HopperForms()) return ProductKind::kBlas;
  const bool stream_k_pays = rows <= kStreamKRows && weight.rows / kStreamKTileRows >= 32;
  if (rows <= 4 || (rows <= kFewRows && !stream_k_pays)) return ProductKind::kFewRows;
  if (rows > kFewRows && rows <= kWideTileInRows &&
      WideTileOf(weight.rows, weight.cols, multiprocessors).used >= (stream_k_pays ? 0.9 : 0.6)) {
    return ProductKind::kWideTile;
  }
  return stream_k_pays ? ProductKind::kStreamK : ProductKind::kBlas;
}

}  // namespace skein::kernels::cuda

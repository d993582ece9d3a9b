#include "kernels/packing/layout.h"

namespace skein::kernels {
namespace {

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

int64_t PackedBytes(const WeightSpec& spec) {
  if (spec.kind == WeightSpec::Kind::kVector) return DTypeBytes(DType::kF32, spec.cols);
  return DTypeBytes(spec.dtype, RoundUp(spec.rows, kTileRows) * spec.cols);
}

KvPageLayout PageLayout(const KvSpec& spec) {
  KvPageLayout layout;
  layout.key_stride = RoundUp(spec.page_size, kLanes);
  layout.value_stride = RoundUp(spec.head_dim, kLanes);
  layout.values = spec.head_dim * layout.key_stride;
  layout.head_stride = layout.values + spec.page_size * layout.value_stride;
  layout.page_stride = spec.kv_heads * layout.head_stride;
  layout.layer_stride = spec.pages * layout.page_stride;
  return layout;
}

int64_t KvBytes(const KvSpec& spec) {
  return DTypeBytes(DType::kF32, spec.layers * PageLayout(spec).layer_stride);
}

}  // namespace skein::kernels

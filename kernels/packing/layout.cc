#include "kernels/packing/layout.h"

#include <algorithm>

namespace skein::kernels {
namespace {

constexpr int64_t kCacheLine = 64;

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

constexpr int64_t ElementBytes(KvDType dtype) {
  switch (dtype) {
    case KvDType::kF32:
      return 4;
    case KvDType::kBF16:
    case KvDType::kF16:
      return 2;
    case KvDType::kInt8:
      return 1;
  }
  return 0;
}

}  // namespace

std::vector<WeightSpec::Part> PartsOf(const WeightSpec& spec) {
  if (!spec.parts.empty()) return spec.parts;
  return {{spec.rows, spec.dtype}};
}

bool HasIntegerRows(const WeightSpec& spec) {
  const std::vector<WeightSpec::Part> parts = PartsOf(spec);
  return std::any_of(parts.begin(), parts.end(),
                     [](const WeightSpec::Part& part) { return HasIntegers(part.dtype); });
}

int64_t InnerBound(const WeightSpec& spec, int64_t block) {
  if (spec.inner_bounds.empty()) return block * spec.cols / spec.inner_blocks;
  return spec.inner_bounds[block];
}

int64_t PackedBytes(const WeightSpec& spec) {
  if (spec.kind == WeightSpec::Kind::kVector) {
    return RoundUp(DTypeBytes(DType::kF32, spec.cols), kCacheLine);
  }
  int64_t bytes = 0;
  for (const WeightSpec::Part& part : PartsOf(spec)) {
    bytes += DTypeBytes(part.dtype, RoundUp(part.rows, kTileRows) * spec.cols);
  }
  return bytes;
}

KvPageLayout PageLayout(const KvSpec& spec) {
  KvPageLayout layout;
  layout.key_stride = RoundUp(spec.page_size, kLanes);
  layout.value_stride = RoundUp(spec.head_dim, kLanes);
  const int64_t element_bytes = ElementBytes(spec.dtype);
  layout.values = RoundUp(spec.head_dim * layout.key_stride * element_bytes, kCacheLine);
  layout.head_stride =
      layout.values + RoundUp(spec.page_size * layout.value_stride * element_bytes, kCacheLine);
  if (spec.dtype == KvDType::kInt8) {
    const int64_t scale_bytes = DTypeBytes(DType::kF32, layout.key_stride);
    layout.key_scales = layout.head_stride;
    layout.value_scales = layout.key_scales + scale_bytes;
    layout.head_stride = layout.value_scales + scale_bytes;
  }
  layout.page_stride = spec.kv_heads * layout.head_stride;
  layout.layer_stride = spec.pages * layout.page_stride;
  return layout;
}

int64_t KvBytes(const KvSpec& spec) { return spec.layers * PageLayout(spec).layer_stride; }

}  // namespace skein::kernels

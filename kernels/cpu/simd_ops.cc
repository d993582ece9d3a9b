// Products of integers have instructions of their own there.
#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL
#endif

#include "kernels/cpu/simd_ops.h"

// Compiles the rest of this file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd_ops.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// Without fused multiply-add the bits would differ: such targets have no operations.
#if HWY_NATIVE_FMA
#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/elementwise-inl.h"
#include "kernels/cpu/integer-inl.h"
#include "kernels/cpu/matmul-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace skein::kernels::HWY_NAMESPACE {

#if HWY_NATIVE_FMA
template <DType kType>
void MultiplyBy(const TileProduct& p) {
  if constexpr (HasIntegers(kType)) {
    if (p.integers.data != nullptr) return MultiplyIntegers<kType>(p);
  }
  return MultiplyTile<kType>(p);
}

void Multiply(const TileProduct& p) {
  switch (p.dtype) {
    case DType::kF32:
      return MultiplyBy<DType::kF32>(p);
    case DType::kF16:
      return MultiplyBy<DType::kF16>(p);
    case DType::kBF16:
      return MultiplyBy<DType::kBF16>(p);
    case DType::kQ4_0:
      return MultiplyBy<DType::kQ4_0>(p);
    case DType::kQ4_1:
      return MultiplyBy<DType::kQ4_1>(p);
    case DType::kQ5_0:
      return MultiplyBy<DType::kQ5_0>(p);
    case DType::kQ5_1:
      return MultiplyBy<DType::kQ5_1>(p);
    case DType::kQ8_0:
      return MultiplyBy<DType::kQ8_0>(p);
    case DType::kQ2_K:
      return MultiplyBy<DType::kQ2_K>(p);
    case DType::kQ3_K:
      return MultiplyBy<DType::kQ3_K>(p);
    case DType::kQ4_K:
      return MultiplyBy<DType::kQ4_K>(p);
    case DType::kQ5_K:
      return MultiplyBy<DType::kQ5_K>(p);
    case DType::kQ6_K:
      return MultiplyBy<DType::kQ6_K>(p);
    case DType::kIQ4_NL:
      return MultiplyBy<DType::kIQ4_NL>(p);
    case DType::kIQ4_XS:
      return MultiplyBy<DType::kIQ4_XS>(p);
    case DType::kFp8:
      return MultiplyBy<DType::kFp8>(p);
    case DType::kInt8:
      return MultiplyBy<DType::kInt8>(p);
    case DType::kInt4:
      return MultiplyBy<DType::kInt4>(p);
    case DType::kI32:
    case DType::kU8:
    case DType::kI8:
    case DType::kI64:
    case DType::kF8E4M3:
      break;  // no weight has such a dtype
  }
}

#endif

const SimdOps* GetSimdOps() {
#if HWY_NATIVE_FMA
  static const SimdOps kOps = {
      .name = hwy::TargetName(HWY_TARGET),
      .multiply = Multiply,
      .quantize = QuantizeRow,
      .attend = Attend,
      .add = Add,
      .add_scaled = AddScaled,
      .rms_norm = RmsNorm,
      .scale = Scale,
      .soft_cap = SoftCapAll,
      .swiglu = SwiGlu,
      .geglu_tanh = GeGluTanh,
      .rotate = Rotate,
      .read = Read,
      .multiply_add = MultiplyAdd,
      .multiply_bytes = MultiplyBytes,
  };
  return &kOps;
#else
  return nullptr;
#endif
}

}  // namespace skein::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace skein::kernels {

HWY_EXPORT(GetSimdOps);

const SimdOps* ChooseSimdOps(int64_t targets) {
  const int64_t supported = hwy::SupportedTargets() & (targets == 0 ? ~int64_t{0} : targets);
  if (supported == 0) return nullptr;
  hwy::GetChosenTarget().Update(supported);
  return HWY_DYNAMIC_DISPATCH(GetSimdOps)();
}

}  // namespace skein::kernels
#endif  // HWY_ONCE

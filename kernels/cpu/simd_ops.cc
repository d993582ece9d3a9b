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
#include "kernels/cpu/matmul-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace skein::kernels::HWY_NAMESPACE {

const SimdOps* GetSimdOps() {
#if HWY_NATIVE_FMA
  static const SimdOps kOps = {
      .name = hwy::TargetName(HWY_TARGET),
      .multiply = Multiply,
      .attend = Attend,
      .add = Add,
      .rms_norm = RmsNorm,
      .swiglu = SwiGlu,
      .rotate = Rotate,
      .read = Read,
      .multiply_add = MultiplyAdd,
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

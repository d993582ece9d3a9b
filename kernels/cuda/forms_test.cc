// What a form of the kernels lacks refuses by name.
#include "kernels/cuda/forms.h"

#include <cstdint>

#include "absl/status/status.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/batch_invariant_linear.h"
#include "kernels/cuda/device_draws.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/few_rows_linear.h"
#include "kernels/cuda/prefill_attention.h"
#include "kernels/cuda/stream_k_linear.h"

namespace skein::kernels::cuda {
namespace {

using ::testing::HasSubstr;

TEST(FormsTest, WhatNeedsHopperRefusesByName) {
  SKEIN_NEED_GPU();
  SKEIN_ASSERT_OK(CheckForms());
  if (HopperForms()) {
    SKEIN_EXPECT_OK(NeedHopper("a kernel"));
    return;
  }
  const auto refuses = [](const absl::Status& status, const char* name) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(name)));
  };
  void* const some = reinterpret_cast<void*>(uintptr_t{32});
  refuses(Enqueue(FewRowsLinear{.rows = 1, .n = 8, .k = 8, .out = some, .multiprocessors = 1}, {}),
          "FewRowsLinear");
  refuses(Enqueue(
              StreamKLinear{
                  .rows = 1, .n = 8, .k = 8, .out = some, .multiprocessors = 1, .workspace = some},
              {}),
          "StreamKLinear");
  refuses(Enqueue(BatchInvariantLinear{.rows = 1, .n = 8, .k = 8, .out = some}, {}),
          "BatchInvariantLinear");
  refuses(EnqueueWarpgroupForm({}, {}), "PrefillAttention by warpgroups");
  refuses(Enqueue(SampledDraws{.draws = 1, .of = {.tokens = 8, .logits_stride = 8}}, {}),
          "SampledDraws");
}

}  // namespace
}  // namespace skein::kernels::cuda

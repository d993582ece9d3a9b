// Prefill attention in one of its forms, SKEIN_PREFILL_FORM, against loops in double.
#include "kernels/cuda/prefill_attention.h"

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/attention_testing.h"
#include "kernels/cuda/comparison.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/forms.h"

// In a test of one form.
#define SKEIN_NEED_FORM()                                         \
  {                                                               \
    if (PrefillForm::SKEIN_PREFILL_FORM == PrefillForm::kWarps) { \
      SKEIN_NEED_GPU();                                           \
    } else {                                                      \
      SKEIN_NEED_HOPPER();                                        \
    }                                                             \
  }                                                               \
  static_assert(true)

namespace skein::kernels::cuda {
namespace {

DeviceBytes Prefill(const PagedProblem& problem, Stream stream) {
  const AttentionShape& shape = problem.shape();
  DeviceBytes out = problem.NewOut();
  Require(Enqueue(PrefillAttention{.dtype = shape.dtype,
                                   .batch = problem.batch(),
                                   .rows = problem.rows(),
                                   .heads = shape.heads,
                                   .kv = problem.kv(),
                                   .scale = shape.scale(),
                                   .window = shape.window,
                                   .q = problem.q(),
                                   .out = out.data(),
                                   .q_stride = problem.q_stride(),
                                   .out_stride = problem.q_stride(),
                                   .form = PrefillForm::SKEIN_PREFILL_FORM},
                  stream));
  return out;
}

void TestPrefill(const AttentionShape& shape, const std::vector<Piece>& pieces) {
  SCOPED_TRACE(shape.Name());
  OwnStream stream;
  const PagedProblem problem(shape, pieces);
  const std::vector<bool> wanted = problem.WithSeveralRows();
  const DeviceBytes out = Prefill(problem, stream);
  SKEIN_ASSERT_OK(stream.Finish());
  EXPECT_TRUE(Agrees(problem.Rows(out, wanted), problem.Reference(wanted)));
  EXPECT_TRUE(problem.OthersAreUntouched(out, wanted));
}

TEST(PrefillAttentionTest, AgreesWithTheDefinition) {
  SKEIN_NEED_FORM();
  // Whole prompts, pieces behind cached prefixes, decoding and padding between them.
  const std::vector<Piece> pieces = {{2, 2},   {17, 17},  {1, 30},  {0, 0},     {5, 70},
                                     {64, 64}, {1, 1},    {65, 65}, {130, 130}, {33, 200},
                                     {0, 9},   {16, 129}, {2, 300}, {0, 0}};
  for (const AttentionShape& shape : AttentionShapes()) TestPrefill(shape, pieces);
}

TEST(PrefillAttentionTest, LongPrompts) {
  SKEIN_NEED_FORM();
  TestPrefill({DType::kBF16, 4, 1, 128, 16, 0}, {{700, 700}, {40, 5000}});
  TestPrefill({DType::kF16, 2, 1, 96, 64, 333}, {{1000, 1500}});
  TestPrefill({DType::kBF16, 4, 1, 128, 16, 0, true}, {{700, 700}, {40, 5000}});
  TestPrefill({DType::kF16, 2, 1, 64, 64, 333, true}, {{1000, 1500}});
}

TEST(PrefillAttentionTest, ManySequencesAreFound) {
  SKEIN_NEED_FORM();
  std::vector<Piece> pieces;
  for (int32_t s = 0; s < 100; ++s) pieces.push_back({s % 5, 5 + s % 31});
  TestPrefill({DType::kBF16, 4, 2, 64, 16, 0}, pieces);
}

}  // namespace
}  // namespace skein::kernels::cuda

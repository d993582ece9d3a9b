// Architectures other than Llama: logits are those of transformers in float32, made once by
// tests/golden/make_goldens.py, and have the same bits in every layout.
#include <memory>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"
#include "tests/engine/golden_logits.h"

namespace skein::worker {
namespace {

constexpr double kMaxRelativeError = 1e-4;

std::unique_ptr<kernels::Backend> MakeCpu() { return *kernels::MakeCpuBackend({.threads = 2}); }

TEST(ArchitecturesTest, ReferenceIsAsTransformers) {
  const GoldenRun run = {.make_backend = [] { return kernels::MakeReferenceBackend(); }};
  for (const GoldenCase& c : ReadArchitectureCases()) {
    SCOPED_TRACE(c.model + ", prompt of " + std::to_string(c.prompt.size()));
    SKEIN_ASSERT_OK_AND_ASSIGN(const Rows rows, RunGoldenCase(c, run));
    EXPECT_LE(RelativeError(rows, c.logits), kMaxRelativeError);
  }
}

TEST(ArchitecturesTest, CoresAreAsTransformersInEveryLayout) {
  for (const GoldenCase& c : ReadArchitectureCases()) {
    SCOPED_TRACE(c.model + ", prompt of " + std::to_string(c.prompt.size()));
    SKEIN_ASSERT_OK_AND_ASSIGN(const Rows alone, RunGoldenCase(c, {.make_backend = MakeCpu}));
    EXPECT_LE(RelativeError(alone, c.logits), kMaxRelativeError);
    for (const plan::Layout& layout : {plan::Layout{2, 1, 1}, plan::Layout{1, 2, 1},
                                       plan::Layout{1, 3, 1}, plan::Layout{2, 3, 1}}) {
      SKEIN_ASSERT_OK_AND_ASSIGN(const Rows rows,
                                 RunGoldenCase(c, {.layout = layout, .make_backend = MakeCpu}));
      EXPECT_EQ(rows, alone) << layout.ToString();
    }
  }
}

}  // namespace
}  // namespace skein::worker

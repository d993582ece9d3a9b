// Checkpoints in published quantisations: logits are those of transformers with the values that
// numpy gave the matrices (tests/golden/make_quantized.py), and have the same bits in every layout.
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
// What activations in 8 bits cost these models: random ones, which feel it more than trained ones.
constexpr double kMaxRounded = 0.05;

std::unique_ptr<kernels::Backend> MakeCpu() { return *kernels::MakeCpuBackend({.threads = 2}); }

TEST(QuantizedCheckpointsTest, ReferenceIsAsTransformers) {
  const GoldenRun run = {.exact = true,
                         .make_backend = [] { return kernels::MakeReferenceBackend(); }};
  for (const GoldenCase& c : ReadQuantizedCases()) {
    SCOPED_TRACE(c.model + ", prompt of " + std::to_string(c.prompt.size()));
    SKEIN_ASSERT_OK_AND_ASSIGN(const Rows rows, RunGoldenCase(c, run));
    EXPECT_LE(RelativeError(rows, c.logits), kMaxRelativeError);
  }
}

TEST(QuantizedCheckpointsTest, CoresAreAsTransformersInEveryLayout) {
  for (const GoldenCase& c : ReadQuantizedCases()) {
    for (const bool exact : {true, false}) {
      SCOPED_TRACE(c.model + ", prompt of " + std::to_string(c.prompt.size()));
      GoldenRun run = {.exact = exact, .make_backend = MakeCpu};
      SKEIN_ASSERT_OK_AND_ASSIGN(const Rows alone, RunGoldenCase(c, run));
      EXPECT_LE(RelativeError(alone, c.logits), exact ? kMaxRelativeError : kMaxRounded);
      run.layout = {2, 1, 1};
      SKEIN_ASSERT_OK_AND_ASSIGN(const Rows shards, RunGoldenCase(c, run));
      EXPECT_EQ(shards, alone);
      if (c.model.find("awq") == std::string::npos) continue;  // others have one layer
      run.layout = {2, 2, 1};
      SKEIN_ASSERT_OK_AND_ASSIGN(const Rows stages, RunGoldenCase(c, run));
      EXPECT_EQ(stages, alone);
    }
  }
}

}  // namespace
}  // namespace skein::worker

// Architectures other than Llama: logits are those of transformers in float32, made once by
// tests/golden/make_goldens.py, and have the same bits in every layout.
#include <memory>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"
#include "model/config/model_config.h"
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
  int with_experts = 0;
  for (const GoldenCase& c : ReadArchitectureCases()) {
    SCOPED_TRACE(c.model + ", prompt of " + std::to_string(c.prompt.size()));
    SKEIN_ASSERT_OK_AND_ASSIGN(const Rows alone, RunGoldenCase(c, {.make_backend = MakeCpu}));
    EXPECT_LE(RelativeError(alone, c.logits), kMaxRelativeError);
    std::vector<plan::Layout> layouts = {{2, 1, 1}, {1, 2, 1}, {1, 3, 1}, {2, 3, 1}};
    SKEIN_ASSERT_OK_AND_ASSIGN(const model::ModelConfig config, model::LoadModelConfig(c.model));
    if (config.experts.count > 0) {
      ++with_experts;
      // Groups of one shard and of two, each with a half or a quarter of the experts.
      layouts.push_back({2, 1, 1, 2});
      layouts.push_back({4, 1, 1, 2});
      layouts.push_back({4, 3, 1, config.experts.count % 4 == 0 ? 4 : 2});
    }
    for (const plan::Layout& layout : layouts) {
      SKEIN_ASSERT_OK_AND_ASSIGN(const Rows rows,
                                 RunGoldenCase(c, {.layout = layout, .make_backend = MakeCpu}));
      EXPECT_EQ(rows, alone) << layout.ToString();
    }
  }
  EXPECT_EQ(with_experts, 12);  // four models, three prompts
}

}  // namespace
}  // namespace skein::worker

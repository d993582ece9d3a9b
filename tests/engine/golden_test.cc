// Logits against those of transformers in float32, made once by tests/golden/make_goldens.py.
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

struct BackendCase {
  std::string name;
  plan::Layout layout;
  bool reference;
};

class GoldenTest : public ::testing::TestWithParam<BackendCase> {};

TEST_P(GoldenTest, LogitsAgree) {
  const GoldenRun run = {.layout = GetParam().layout,
                         .make_backend = []() -> std::unique_ptr<kernels::Backend> {
                           if (GetParam().reference) return kernels::MakeReferenceBackend();
                           return *kernels::MakeCpuBackend({.threads = 2});
                         }};
  for (const GoldenCase& c : ReadGoldenCases()) {
    SCOPED_TRACE(c.model + ", prompt of " + std::to_string(c.prompt.size()));
    SKEIN_ASSERT_OK_AND_ASSIGN(const Rows rows, RunGoldenCase(c, run));
    EXPECT_LE(RelativeError(rows, c.logits), kMaxRelativeError);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, GoldenTest,
                         ::testing::Values(BackendCase{"reference", {1, 1, 1}, true},
                                           BackendCase{"cpu", {1, 1, 1}, false},
                                           BackendCase{"cpu_tp2_pp2", {2, 2, 1}, false}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::worker

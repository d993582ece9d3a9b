// Caches that round keys and values, over whole models. What rounding alone does to logits:
//
// An element's error has, relative to the root mean square of its vector, a root mean square r:
//   bf16: at most 2^-8 of the element, where its mantissa begins, 2^-9 where it ends; uniform
//   within
//     that, over mantissas that are even in the logarithm: 2^-8 / sqrt(3) * 0.74.
//   int8: at most 1/254 of the vector's largest element, which of 64 normal ones is 2.9 times their
//     root mean square; uniform within that: 2.9 / 254 / sqrt(3).
// Each of L layers adds two such errors, of keys and of values, to what it adds to the residual
// stream. The errors are independent, so that they add up as squares: r * sqrt(2 L). A key's goes
// through a score, which the models' weights make larger: at most twice that is allowed. Much less
// than r cannot be: the cache would not round.
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"
#include "model/config/model_config.h"
#include "model/format/open.h"
#include "tests/engine/golden_logits.h"
#include "tests/engine/local_replica.h"

namespace skein::worker {
namespace {

using ::skein::kernels::KvDType;

struct Cache {
  std::string name;
  KvDType dtype;
  double rounding;   // r
  double nll_error;  // nats; see the last test
};

void PrintTo(const Cache& cache, std::ostream* out) { *out << cache.name; }

std::unique_ptr<kernels::Backend> Reference() { return kernels::MakeReferenceBackend(); }
std::unique_ptr<kernels::Backend> Cpu() { return *kernels::MakeCpuBackend({.threads = 2}); }

class KvDTypeTest : public ::testing::TestWithParam<Cache> {};

TEST_P(KvDTypeTest, LogitsAreOffByRoundingOnly) {
  const Cache& cache = GetParam();
  int compared = 0;
  for (const GoldenCase& c : ReadGoldenCases()) {
    if (c.prompt.size() == 1) continue;
    SCOPED_TRACE(c.model + ", prompt of " + std::to_string(c.prompt.size()));
    SKEIN_ASSERT_OK_AND_ASSIGN(const model::ModelConfig config, model::LoadModelConfig(c.model));
    const auto run = [&](plan::Layout layout, auto make_backend) {
      return RunGoldenCase(
          c, {.layout = layout, .kv_dtype = cache.dtype, .make_backend = make_backend});
    };
    SKEIN_ASSERT_OK_AND_ASSIGN(const Rows reference, run({1, 1, 1}, Reference));
    SKEIN_ASSERT_OK_AND_ASSIGN(const Rows cpu, run({1, 1, 1}, Cpu));
    SKEIN_ASSERT_OK_AND_ASSIGN(const Rows split, run({2, 2, 1}, Cpu));
    EXPECT_EQ(split, cpu);
    const double most = 2 * cache.rounding * std::sqrt(2 * static_cast<double>(config.num_layers));
    for (const Rows* rows : {&reference, &cpu}) {
      EXPECT_LE(RelativeError(*rows, c.logits), most);
      EXPECT_GE(RelativeError(*rows, c.logits), cache.rounding / 8);
    }
    // Both round the same numbers, but for the few that float32's 1e-6 carries over the middle of
    // two; two caches with nothing in common would differ by sqrt(2) times what one is off.
    EXPECT_LE(RelativeError(cpu, reference), RelativeError(reference, c.logits) / 2);
    ++compared;
  }
  EXPECT_EQ(compared, 10);
}

// What rounding costs in quality, on text that bard was not trained on. The relative errors above
// are 2.5e-3 of bard's rows under int8, 7e-4 under bf16: with norms up to 260 over 2,048 logits, a
// log probability is off by 2e-2 and 6e-3; the mean of 2,044 by 4.5e-4 and 1.3e-4. Twice these.
TEST_P(KvDTypeTest, HeldOutTextIsAsLikely) {
  const Cache& cache = GetParam();
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto config, model::LoadModelConfig("checkpoints/bard"));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tensors, model::OpenTensorSource("checkpoints/bard"));
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const auto replica,
      LocalReplica::Create(config, *tensors, {.kv_dtype = cache.dtype, .make_backend = Cpu}));
  std::ifstream file("tests/golden/answers.json");
  std::vector<serving::Request> requests;
  double want = 0;
  const nlohmann::json golden = nlohmann::json::parse(file);
  for (const nlohmann::json& window : golden.at("held_out")) {
    requests.push_back({.id = serving::RequestId(requests.size() + 1),
                        .prompt = window.at("ids"),
                        .max_tokens = 1});
    requests.back().prompt_logprobs = 0;
    want += window.at("nll").get<double>();
  }
  ASSERT_EQ(requests.size(), 4u);
  want /= 4;
  SKEIN_ASSERT_OK(replica->Generate(
      requests, {.max_num_batched_tokens = 256, .logit_rows = 256, .max_micro_batch_rows = 256}));
  double got = 0;
  int tokens = 0;
  for (const auto& [id, logprobs] : replica->prompt_logprobs()) {
    for (const serving::SampledToken& token : logprobs) got -= token.logprob;
    tokens += static_cast<int>(logprobs.size());
  }
  EXPECT_EQ(tokens, 4 * 511);
  EXPECT_NEAR(got / tokens, want, cache.nll_error);
}

INSTANTIATE_TEST_SUITE_P(
    Caches, KvDTypeTest,
    ::testing::Values(Cache{"bf16", KvDType::kBF16, 0.74 / 256 / std::sqrt(3.0), 2.6e-4},
                      Cache{"int8", KvDType::kInt8, 2.9 / 254 / std::sqrt(3.0), 9e-4}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::worker

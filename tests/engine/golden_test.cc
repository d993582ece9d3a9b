// Logits against those of transformers in float32, made once by tests/golden/make_goldens.py.
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"
#include "model/config/model_config.h"
#include "model/format/open.h"
#include "tests/engine/local_replica.h"

namespace skein::worker {
namespace {

constexpr double kMaxRelativeError = 1e-4;
constexpr int64_t kPageSize = 16;
constexpr SequenceId kId = 1;

struct GoldenCase {
  std::string model;
  std::vector<int32_t> prompt;
  std::vector<int32_t> decode;             // fed, one a step
  std::vector<std::vector<float>> logits;  // of the prompt's end and of each decode step
};

std::vector<GoldenCase> ReadCases() {
  std::ifstream index_file("tests/golden/logits.json");
  const nlohmann::json index = nlohmann::json::parse(index_file);
  std::ifstream data("tests/golden/logits.f32", std::ios::binary);
  std::vector<GoldenCase> cases;
  for (const nlohmann::json& row : index.at("cases")) {
    GoldenCase c{.model = row.at("model"), .prompt = row.at("prompt"), .decode = row.at("decode")};
    data.seekg(row.at("offset_bytes").get<int64_t>());
    for (int i = 0; i < row.at("rows").get<int>(); ++i) {
      std::vector<float>& logits = c.logits.emplace_back(row.at("vocab").get<int>());
      data.read(reinterpret_cast<char*>(logits.data()),
                static_cast<std::streamsize>(logits.size() * sizeof(float)));
      EXPECT_TRUE(data.good());
    }
    cases.push_back(std::move(c));
  }
  return cases;
}

// ||got - want|| / ||want||; infinite when a value is not finite.
double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    difference += std::pow(static_cast<double>(got[i]) - want[i], 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(difference / norm);
}

struct BackendCase {
  std::string name;
  plan::Layout layout;
  bool reference;
};

class GoldenTest : public ::testing::TestWithParam<BackendCase> {};

TEST_P(GoldenTest, LogitsAgree) {
  const std::vector<GoldenCase> cases = ReadCases();
  ASSERT_GE(cases.size(), 15u);  // five models, three prompts each
  for (const GoldenCase& c : cases) {
    SCOPED_TRACE(c.model + ", prompt of " + std::to_string(c.prompt.size()));
    SKEIN_ASSERT_OK_AND_ASSIGN(const model::ModelConfig config, model::LoadModelConfig(c.model));
    SKEIN_ASSERT_OK_AND_ASSIGN(auto tensors, model::OpenTensorSource(c.model));
    LocalReplicaOptions options{.layout = GetParam().layout, .page_size = kPageSize, .pages = 32};
    // Three KV heads cannot be split into two shards.
    if (config.num_kv_heads % options.layout.tensor != 0) options.layout.tensor = 1;
    options.make_backend = []() -> std::unique_ptr<kernels::Backend> {
      if (GetParam().reference) return kernels::MakeReferenceBackend();
      return *kernels::MakeCpuBackend({.threads = 2});
    };
    SKEIN_ASSERT_OK_AND_ASSIGN(auto replica, LocalReplica::Create(config, *tensors, options));

    PageTableUpdate table{.id = kId};
    for (int32_t page = 31; page >= 0; --page) table.pages.push_back(page);
    StepOrder order{.started = {{.id = kId, .sampling = {.temperature = 0}}}, .tables = {table}};
    order.micro_batches = {{{.id = kId, .begin = 0, .tokens = c.prompt, .sample = true}}};
    SKEIN_ASSERT_OK(replica->Run(order));
    int64_t position = static_cast<int64_t>(c.prompt.size());
    for (int32_t token : c.decode) {
      order = {};
      order.micro_batches = {{{.id = kId, .begin = position++, .tokens = {token}, .sample = true}}};
      SKEIN_ASSERT_OK(replica->Run(order));
    }
    ASSERT_EQ(replica->logits().size(), c.logits.size());
    for (size_t row = 0; row < c.logits.size(); ++row) {
      const int64_t at = static_cast<int64_t>(c.prompt.size() + row) - 1;
      EXPECT_LE(RelativeError(replica->logits().at({kId, at}), c.logits[row]), kMaxRelativeError)
          << "row " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, GoldenTest,
                         ::testing::Values(BackendCase{"reference", {1, 1, 1}, true},
                                           BackendCase{"cpu", {1, 1, 1}, false},
                                           BackendCase{"cpu_tp2_pp2", {2, 2, 1}, false}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::worker

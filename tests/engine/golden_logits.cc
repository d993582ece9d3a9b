#include "tests/engine/golden_logits.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/config/model_config.h"
#include "model/format/open.h"
#include "tests/engine/local_replica.h"

namespace skein::worker {
namespace {

constexpr int64_t kPageSize = 16;
constexpr int64_t kPages = 32;

// `stem`.json and `stem`.f32, of so many models and served contexts.
std::vector<GoldenCase> ReadCases(const std::string& stem, size_t models) {
  std::ifstream index_file("tests/golden/" + stem + ".json");
  const nlohmann::json index = nlohmann::json::parse(index_file);
  std::ifstream data("tests/golden/" + stem + ".f32", std::ios::binary);
  std::vector<GoldenCase> cases;
  for (const nlohmann::json& row : index.at("cases")) {
    GoldenCase c{.model = row.at("model"),
                 .context_length = row.value("context", int64_t{0}),
                 .prompt = row.at("prompt"),
                 .decode = row.at("decode")};
    data.seekg(row.at("offset_bytes").get<int64_t>());
    for (int i = 0; i < row.at("rows").get<int>(); ++i) {
      std::vector<float>& logits = c.logits.emplace_back(row.at("vocab").get<int>());
      data.read(reinterpret_cast<char*>(logits.data()),
                static_cast<std::streamsize>(logits.size() * sizeof(float)));
      EXPECT_TRUE(data.good());
    }
    cases.push_back(std::move(c));
  }
  std::map<std::pair<std::string, int64_t>, std::vector<size_t>> prompts;
  for (const GoldenCase& c : cases) {
    prompts[{c.model, c.context_length}].push_back(c.prompt.size());
    EXPECT_EQ(c.decode.size(), 20u) << c.model;
    EXPECT_EQ(c.logits.size(), 21u) << c.model;
  }
  EXPECT_EQ(prompts.size(), models);
  for (const auto& [model, sizes] : prompts) {
    EXPECT_THAT(sizes, ::testing::ElementsAre(1, 7, 200)) << model.first;
  }
  return cases;
}

}  // namespace

std::vector<GoldenCase> ReadGoldenCases() { return ReadCases("logits", 5); }
std::vector<GoldenCase> ReadArchitectureCases() { return ReadCases("architectures", 14); }
std::vector<GoldenCase> ReadQuantizedCases() { return ReadCases("quantized", 10); }

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

double RelativeError(const Rows& got, const Rows& want) {
  if (got.size() != want.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, RelativeError(got[i], want[i]));
  }
  return largest;
}

absl::StatusOr<Rows> RunGoldenCase(const GoldenCase& golden, const GoldenRun& run) {
  SKEIN_ASSIGN_OR_RETURN(const model::ModelConfig config, model::LoadModelConfig(golden.model));
  SKEIN_ASSIGN_OR_RETURN(auto tensors, model::OpenTensorSource(golden.model));
  LocalReplicaOptions options{.layout = run.layout,
                              .context_length = golden.context_length,
                              .page_size = kPageSize,
                              .pages = kPages,
                              .kv_dtype = run.kv_dtype,
                              .exact = run.exact,
                              .make_backend = run.make_backend};
  const int64_t shards = options.layout.tp_size;
  if (config.num_kv_heads % shards != 0 && shards % config.num_kv_heads != 0) {
    options.layout.tp_size = 1;
  }
  SKEIN_ASSIGN_OR_RETURN(auto replica, LocalReplica::Create(config, *tensors, options));

  kernels::SlotUpdate update;
  for (int32_t page = kPages - 1; page >= 0; --page) update.pages.push_back(page);
  StepOrder order{.starts = {{.sampling = {.temperature = 0}}}, .updates = {update}};
  order.micro_batches = {{{.tokens = {golden.prompt.begin(), golden.prompt.end()}, .draws = true}}};
  SKEIN_RETURN_IF_ERROR(replica->Run(order).status());
  for (int32_t token : golden.decode) {
    order = {};
    order.micro_batches = {{{.tokens = {token}, .draws = true}}};
    SKEIN_RETURN_IF_ERROR(replica->Run(order).status());
  }
  Rows rows;  // sampled ones, by position
  for (const auto& [key, logits] : replica->logits()) rows.push_back(logits);
  return rows;
}

}  // namespace skein::worker

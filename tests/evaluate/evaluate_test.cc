// What a model makes of a text, against transformers in float32
// (tests/golden/make_text_goldens.py).
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "model/quantize/importance.h"
#include "model/quantize/quantize.h"
#include "tests/golden/golden_model.h"
#include "worker/evaluate/imatrix.h"
#include "worker/evaluate/perplexity.h"

namespace skein::testing {
namespace {

using ::nlohmann::json;
using ::testing::HasSubstr;

constexpr char kBard[] = "checkpoints/bard";
constexpr char kMixtral[] = "tests/golden/models/mixtral";
constexpr char kText[] = "scripts/train/tinyshakespeare.txt";

class EvaluateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/evaluate_", getpid());
    std::filesystem::create_directories(folder_);
    golden_ = json::parse(std::ifstream("tests/golden/text.json"));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string In(const std::string& name) const { return folder_ + "/" + name; }

  // Golden models have no vocabulary of their own.
  static std::string WithVocabulary(const std::string& model) {
    return model == kBard ? model : testing::GoldenModel(std::filesystem::path(model).filename());
  }

  std::string folder_;
  json golden_;
};

TEST_F(EvaluateTest, PerplexitiesAreThoseOfTransformers) {
  for (const char* model : {kBard, kMixtral}) {
    for (const json& row : golden_[model]["perplexity"]) {
      SCOPED_TRACE(absl::StrCat(model, " ", row.dump()));
      SKEIN_ASSERT_OK_AND_ASSIGN(const worker::Perplexity got,
                                 worker::MeasurePerplexity({.model = WithVocabulary(model),
                                                            .text = kText,
                                                            .context = row["context"],
                                                            .stride = row["stride"],
                                                            .most_tokens = golden_[model]["tokens"],
                                                            .threads = 2}));
      EXPECT_EQ(got.tokens, row["tokens"].get<int64_t>());
      EXPECT_NEAR(got.nll, row["nll"].get<double>(), 1e-5);
      EXPECT_NEAR(got.perplexity(), std::exp(row["nll"].get<double>()), 1e-3);
      EXPECT_GT(got.nll_error, 0.01);
      EXPECT_LT(got.nll_error, 0.2);
      EXPECT_FALSE(got.divergence.has_value());
    }
  }
}

// Of a model from itself there is none; of a quantised one the more, the fewer its bits; keys and
// values of 8 bits tell, too.
TEST_F(EvaluateTest, DivergencesGrowWithFewerBits) {
  worker::PerplexityOptions options = {
      .text = kText, .against = kBard, .context = 128, .most_tokens = 1500, .threads = 2};
  const auto from_bard = [&](const std::string& model) {
    options.model = model;
    const absl::StatusOr<worker::Perplexity> got = worker::MeasurePerplexity(options);
    SKEIN_EXPECT_OK(got.status());
    return *got->divergence;
  };
  const auto itself = from_bard(kBard);
  EXPECT_EQ(itself.mean, 0);
  EXPECT_EQ(itself.most, 0);
  EXPECT_EQ(itself.same_top, 1);
  double last = 0;
  for (const char* recipe : {"Q8_0", "Q6_K", "Q4_K_M", "Q2_K"}) {
    SCOPED_TRACE(recipe);
    SKEIN_ASSERT_OK(model::QuantizeToGguf(kBard, In(absl::StrCat(recipe, ".gguf")),
                                          {.recipe = recipe, .threads = 2}));
    const auto far = from_bard(In(absl::StrCat(recipe, ".gguf")));
    EXPECT_GT(far.mean, 4 * last);
    EXPECT_LE(far.median, far.p99);
    EXPECT_LE(far.p99, far.most);
    EXPECT_LT(far.same_top, 1);
    EXPECT_NEAR(far.against_perplexity, itself.against_perplexity, 1e-9);
    last = far.mean;
  }
  EXPECT_LT(last, 0.05);
  options.kv_dtype = kernels::KvDType::kInt8;
  const auto rounded_keys = from_bard(kBard);
  EXPECT_GT(rounded_keys.mean, 1e-7);
  EXPECT_LT(rounded_keys.mean, 1e-3);
  options.kv_dtype = kernels::KvDType::kF32;
  // Inputs that are not rounded to 8 bits err less.
  const double rounded = from_bard(In("Q8_0.gguf")).mean;
  options.exact = true;
  EXPECT_LT(from_bard(In("Q8_0.gguf")).mean, 0.7 * rounded);
}

TEST_F(EvaluateTest, ImportancesAreThoseOfTransformers) {
  for (const char* model : {kBard, kMixtral}) {
    const json& golden = golden_[model]["imatrix"];
    const std::string out = In(absl::StrCat(model == kBard ? "bard" : "mixtral", ".gguf"));
    SKEIN_ASSERT_OK(worker::RunImatrix({.model = WithVocabulary(model),
                                        .text = kText,
                                        .out = out,
                                        .context = golden["context"],
                                        .most_tokens = golden_[model]["tokens"],
                                        .threads = 2}));
    SKEIN_ASSERT_OK_AND_ASSIGN(const model::ImportanceMatrix got, model::ReadImportance(out));
    EXPECT_EQ(got.tensors.size(), golden["tensors"].size());
    EXPECT_EQ(got.texts, std::vector<std::string>{kText});
    EXPECT_EQ(got.chunk_tokens, golden["context"].get<int64_t>());
    for (const auto& [name, want] : golden["tensors"].items()) {
      SCOPED_TRACE(absl::StrCat(model, " ", name));
      ASSERT_TRUE(got.tensors.contains(name));
      const model::Importance& mine = got.tensors.at(name);
      EXPECT_EQ(mine.counts, want["counts"].get<std::vector<int64_t>>());
      for (int64_t e = 0; e < mine.experts(); ++e) {
        const float* const sums = mine.sums.data() + e * mine.cols;
        double total = 0;
        for (int64_t col = 0; col < mine.cols; ++col) total += sums[col];
        const auto near = [&](double value, const char* key) {
          const double expected = want[key][static_cast<size_t>(e)];
          EXPECT_NEAR(value, expected, 1e-4 * expected) << key << " of expert " << e;
        };
        near(total, "totals");
        near(sums[0], "first");
        near(sums[mine.cols - 1], "last");
      }
    }
  }
}

// A file and the folder that it was made of are one model: names and orders of rows agree.
TEST_F(EvaluateTest, ImportancesOfAFileAreThoseOfItsFolder) {
  SKEIN_ASSERT_OK(model::QuantizeToGguf(kBard, In("q8.gguf"), {.recipe = "Q8_0"}));
  std::vector<model::ImportanceMatrix> matrices;
  for (const std::string& model : {std::string(kBard), In("q8.gguf")}) {
    const std::string out = In(absl::StrCat("of", matrices.size(), ".gguf"));
    SKEIN_ASSERT_OK(worker::RunImatrix(
        {.model = model, .text = kText, .out = out, .most_tokens = 300, .threads = 2}));
    SKEIN_ASSERT_OK_AND_ASSIGN(matrices.emplace_back(), model::ReadImportance(out));
  }
  for (const auto& [name, want] : matrices[0].tensors) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(matrices[1].tensors.contains(name));
    const model::Importance& got = matrices[1].tensors.at(name);
    EXPECT_EQ(got.counts, want.counts);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < want.sums.size(); ++i) {
      difference += std::abs(double{got.sums[i]} - want.sums[i]);
      norm += want.sums[i];
    }
    EXPECT_LT(difference, 0.05 * norm);
  }
}

TEST_F(EvaluateTest, Errors) {
  const auto refused = [](const worker::PerplexityOptions& options, absl::StatusCode code,
                          const std::string& says) {
    EXPECT_THAT(worker::MeasurePerplexity(options), StatusIs(code, HasSubstr(says)));
  };
  refused({.model = kBard, .text = In("none.txt")}, absl::StatusCode::kNotFound, In("none.txt"));
  refused({.model = In("none"), .text = kText}, absl::StatusCode::kNotFound, In("none"));
  refused({.model = kBard, .text = kText, .context = 2048}, absl::StatusCode::kInvalidArgument,
          "--context: 2048 tokens exceed the 1024 of checkpoints/bard");
  refused({.model = kBard, .text = kText, .context = 64, .stride = 64},
          absl::StatusCode::kInvalidArgument, "--stride: must be from 1 to 63");
  std::ofstream(In("empty.txt"));
  refused({.model = kBard, .text = In("empty.txt")}, absl::StatusCode::kInvalidArgument,
          "TEXT: its 0 tokens");
  std::ofstream(In("latin1.txt")) << "caf\xe9";
  refused({.model = kBard, .text = In("latin1.txt")}, absl::StatusCode::kInvalidArgument,
          In("latin1.txt"));
  refused({.model = kBard, .text = kText, .against = WithVocabulary(kMixtral), .most_tokens = 64},
          absl::StatusCode::kInvalidArgument, "has another vocabulary than checkpoints/bard");

  // The last norm's gains, at the file's end, are no numbers.
  std::filesystem::copy(kBard, In("broken"));
  const std::string weights = In("broken/model.safetensors");
  std::filesystem::permissions(weights, std::filesystem::perms::owner_all);
  std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-512, std::ios::end);
  file << std::string(512, '\xff');
  file.close();
  refused({.model = In("broken"), .text = kText, .most_tokens = 20}, absl::StatusCode::kInternal,
          In("broken") + " gives logits that are no numbers");
  refused({.model = kBard, .text = kText, .against = In("broken"), .most_tokens = 20},
          absl::StatusCode::kInternal, In("broken") + " gives logits");

  std::ofstream(In("there.gguf")) << "x";
  EXPECT_THAT(worker::RunImatrix({.model = kBard, .text = kText, .out = In("there.gguf")}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(In("there.gguf"))));
  EXPECT_THAT(worker::RunImatrix({.model = kBard, .text = kText, .out = In("out.dat")}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("does not end with .gguf")));
  const std::string nowhere = In("none/out.gguf");
  EXPECT_THAT(worker::RunImatrix({.model = In("none"), .text = kText, .out = nowhere}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(nowhere)));
}

}  // namespace
}  // namespace skein::testing

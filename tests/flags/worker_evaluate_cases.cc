// The flags of `worker perplexity` and `worker imatrix`.
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/run.h"
#include "tests/flags/worker_cases.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using nlohmann::json;

// Some 300 tokens of bard's.
std::string Text() {
  const std::string path = NewPath("text");
  std::ofstream file(path);
  for (int i = 0; i < 20; ++i) file << "But, soft! what light through yonder window breaks?\n";
  return path;
}

Outcome Perplexity(const std::string& flags) {
  return Run(kWorker, absl::StrCat("perplexity checkpoints/bard ", Text(), " ", flags));
}

json Figures(const std::string& flags) {
  const std::string file = NewPath("figures.json");
  const Outcome outcome = Perplexity(absl::StrCat(flags, " --json=", file));
  EXPECT_TRUE(outcome.ok()) << outcome.err;
  return json::parse(ReadFileOrEmpty(file), nullptr, /*allow_exceptions=*/false);
}

Outcome Imatrix(const std::string& flags) {
  return Run(kWorker,
             absl::StrCat("imatrix checkpoints/bard ", Text(), " ", NewPath("i"), ".gguf ", flags));
}

void PerplexityContext() {
  const json narrow = Figures("--context=16");
  EXPECT_EQ(narrow["context"], 16);
  EXPECT_GT(narrow["windows"], 2 * Figures("--context=64")["windows"].get<int>());
  EXPECT_THAT(Perplexity("--context=5000").err,
              HasSubstr("--context: 5000 tokens exceed the 1024"));
}

void PerplexityStride() {
  EXPECT_GT(Figures("--context=64 --stride=4")["windows"],
            2 * Figures("--context=64")["windows"].get<int>());
  EXPECT_THAT(Perplexity("--context=64 --stride=64").err,
              HasSubstr("--stride: must be from 1 to 63"));
}

void PerplexityTokens() { EXPECT_EQ(Figures("--tokens=21")["tokens"], 21); }

void PerplexityAgainst() {
  const json figures = Figures("--against=checkpoints/bard");
  EXPECT_EQ(figures["against"]["kl_mean"], 0);
  EXPECT_EQ(figures["against"]["same_top"], 1);
  EXPECT_FALSE(Figures("").contains("against"));
  EXPECT_THAT(Perplexity("--against=/nowhere").err, HasSubstr("/nowhere"));
}

void PerplexityKvDType() {
  EXPECT_GT(Figures("--against=checkpoints/bard --kv-dtype=int8")["against"]["kl_mean"], 1e-8);
}

void PerplexityExact() {
  const std::string model = NewPath("q8") + ".gguf";
  ASSERT_TRUE(
      Run("client/skein", absl::StrCat("quantize checkpoints/bard ", model, " --type=Q8_0")).ok());
  const auto divergence = [&](const std::string& flags) {
    const std::string file = NewPath("figures.json");
    EXPECT_TRUE(Run(kWorker, absl::StrCat("perplexity ", model, " ", Text(),
                                          " --against=checkpoints/bard --json=", file, flags))
                    .ok());
    return json::parse(ReadFileOrEmpty(file))["against"]["kl_mean"].get<double>();
  };
  EXPECT_LT(divergence(" --exact"), 0.9 * divergence(""));
}

void PerplexityJson() {
  const Outcome printed = Perplexity("--json=-");
  EXPECT_THAT(printed.out, StartsWith("perplexity "));
  EXPECT_TRUE(json::accept(printed.out.substr(printed.out.find('\n'))));
  EXPECT_FALSE(json::accept(Perplexity("").out.substr(Perplexity("").out.find('\n'))));
  const Outcome nowhere = Perplexity("--json=/nowhere/figures.json");
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("--json: "));
  EXPECT_EQ(nowhere.out, "");
}

void Threads(const std::string& command) {
  const auto most = [&](int threads) {
    return MostThreads(kWorker,
                       absl::StrCat(command, " checkpoints/bard ", Text(), " ",
                                    command == "imatrix" ? NewPath("i") + ".gguf" : "--stride=2",
                                    " --context=64 --threads=", threads));
  };
  // Loading has as many helpers for a moment, which may be seen or not: one of two threads.
  EXPECT_GE(most(9) - most(2), 6);
}

void ImatrixTokens() {
  EXPECT_THAT(Imatrix("--tokens=30").out, HasSubstr("57 tensors, by 31 tokens of "));
}

// Each window begins with one more token.
void ImatrixContext() {
  EXPECT_THAT(Imatrix("--tokens=30 --context=11").out, HasSubstr("57 tensors, by 33 tokens of "));
}

}  // namespace

FlagCases WorkerEvaluateCases() {
  return {
      HelpCase(kWorker, "perplexity"),
      {{"perplexity", "--context"}, PerplexityContext},
      {{"perplexity", "--stride"}, PerplexityStride},
      {{"perplexity", "--tokens"}, PerplexityTokens},
      {{"perplexity", "--threads"}, [] { Threads("perplexity"); }},
      {{"perplexity", "--against"}, PerplexityAgainst},
      {{"perplexity", "--kv-dtype"}, PerplexityKvDType},
      {{"perplexity", "--exact"}, PerplexityExact},
      {{"perplexity", "--json"}, PerplexityJson},
      HelpCase(kWorker, "imatrix"),
      {{"imatrix", "--context"}, ImatrixContext},
      {{"imatrix", "--tokens"}, ImatrixTokens},
      {{"imatrix", "--threads"}, [] { Threads("imatrix"); }},
  };
}

}  // namespace skein::testing

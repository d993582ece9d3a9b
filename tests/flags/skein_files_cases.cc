// The flags of `skein convert` and `skein quantize`, and of the commands that the worker program
// does.
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/ask.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/run.h"
#include "tests/flags/skein_cases.h"

namespace skein::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A command that writes a GGUF file of bard, and what `inspect` says of it.
std::string InspectedOf(const std::string& command, const std::string& flags,
                        const std::string& file = "") {
  const std::string out = absl::StrCat(::testing::TempDir(), "/flags_made.gguf");
  const std::string first =
      file.empty() ? out : absl::StrCat(::testing::TempDir(), "/flags_made", file);
  const Outcome made = Run(kSkein, absl::StrCat(command, " checkpoints/bard ", out, " ", flags));
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr(first));
  const std::string said = Run(kSkein, absl::StrCat("inspect --json ", first)).out;
  for (const auto& each : std::filesystem::directory_iterator(::testing::TempDir())) {
    if (each.path().filename().string().starts_with("flags_made")) {
      std::filesystem::remove(each.path());
    }
  }
  return said;
}

void ConvertType() {
  EXPECT_THAT(InspectedOf("convert", ""), HasSubstr("\"BF16\""));
  const std::string halves = InspectedOf("convert", "--type=f16");
  EXPECT_THAT(halves, AllOf(HasSubstr("\"F16\""), Not(HasSubstr("\"BF16\""))));
}

void ConvertSplit() {
  EXPECT_THAT(InspectedOf("convert", "--split=4M", "-00001-of-00004.gguf"),
              HasSubstr("\"files\":4"));
}

void QuantizeType() {
  EXPECT_THAT(InspectedOf("quantize", ""), HasSubstr("\"Q4_K\""));
  EXPECT_THAT(InspectedOf("quantize", "--type=q5_1"),
              AllOf(HasSubstr("\"Q5_1\""), Not(HasSubstr("\"Q4_K\""))));
  EXPECT_THAT(Run(kSkein, "quantize checkpoints/bard x.gguf --type=q9").err,
              AllOf(HasSubstr("--type"), HasSubstr("'q9' is none of Q8_0, ")));
}

void QuantizeSplit() {
  EXPECT_THAT(InspectedOf("quantize", "--split=1M", "-00001-of-00005.gguf"),
              HasSubstr("\"files\":5"));
}

void QuantizeImatrix() {
  const std::string text = NewPath("text");
  std::ofstream(text) << "But, soft! what light through yonder window breaks?";
  const std::string importance = NewPath("importance") + ".gguf";
  const Outcome counted =
      Run(kSkein,
          absl::StrCat("imatrix --worker=worker/worker checkpoints/bard ", text, " ", importance));
  ASSERT_EQ(counted.exit_code, 0) << counted.err;
  const std::string out = NewPath("quantized") + ".gguf";
  const Outcome made =
      Run(kSkein, absl::StrCat("quantize checkpoints/bard ", out, " --imatrix=", importance));
  EXPECT_EQ(made.exit_code, 0) << made.err;
  const Outcome without = Run(kSkein, absl::StrCat("quantize checkpoints/bard ", NewPath("other"),
                                                   ".gguf --imatrix=", out));
  EXPECT_EQ(without.exit_code, 1);
  EXPECT_THAT(without.err, HasSubstr("is no importance matrix"));
}

void QuantizeThreads() {
  const auto most = [](int threads) {
    return MostThreads(kSkein, absl::StrCat("quantize checkpoints/bard ", NewPath("q"),
                                            ".gguf --type=Q2_K --threads=", threads));
  };
  EXPECT_EQ(most(9) - most(2), 7);
}

// The program that is named is started, with the rest of the line.
void WorkerOf(const std::string& command) {
  const std::string script = NewPath("worker");
  std::ofstream(script) << "#!/bin/sh\necho started \"$@\"\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  EXPECT_EQ(Run(kSkein, absl::StrCat(command, " --worker=", script, " a --context=3 b")).out,
            absl::StrCat("started ", command, " a --context=3 b\n"));
  const Outcome nobody = Run(kSkein, command + " --worker=/nowhere a b c");
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("/nowhere"));
}

}  // namespace

FlagCases FilesCases() {
  return {
      HelpCase(kSkein, "convert"),
      {{"convert", "--type"}, ConvertType},
      {{"convert", "--split"}, ConvertSplit},
      HelpCase(kSkein, "quantize"),
      {{"quantize", "--type"}, QuantizeType},
      {{"quantize", "--split"}, QuantizeSplit},
      {{"quantize", "--imatrix"}, QuantizeImatrix},
      {{"quantize", "--threads"}, QuantizeThreads},
      {{"perplexity", "--worker"}, [] { WorkerOf("perplexity"); }},
      {{"imatrix", "--worker"}, [] { WorkerOf("imatrix"); }},
  };
}

}  // namespace skein::testing

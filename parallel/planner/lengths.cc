#include "parallel/planner/lengths.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/status_util.h"

namespace skein::plan {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 30;  // as the flags have it

}  // namespace

absl::StatusOr<std::vector<Lengths>> ParseLengths(std::string_view csv) {
  std::vector<Lengths> lengths;
  int64_t number = 0;
  for (const auto line : absl::StrSplit(absl::string_view(csv.data(), csv.size()), '\n')) {
    ++number;
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty()) continue;
    const std::vector<absl::string_view> fields = absl::StrSplit(text, ',');
    Lengths entry;
    const auto read = [](absl::string_view field, int64_t& tokens) {
      return absl::SimpleAtoi(field, &tokens) && tokens >= 1 && tokens <= kMostTokens;
    };
    if (fields.size() != 2 || !read(fields[0], entry.prompt) || !read(fields[1], entry.answer)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", number, ": '", text, "' is not PROMPT,ANSWER in tokens, like 128,64"));
    }
    lengths.push_back(entry);
  }
  if (lengths.empty()) return absl::InvalidArgumentError("there is no line PROMPT,ANSWER in it");
  return lengths;
}

absl::StatusOr<std::vector<Lengths>> ReadLengths(const std::string& path) {
  constexpr int64_t kMostBytes = 64 << 20;  // millions of lines
  SKEIN_ASSIGN_OR_RETURN(const std::string text, ReadFileOrPipe(path, kMostBytes));
  absl::StatusOr<std::vector<Lengths>> lengths = ParseLengths(text);
  if (!lengths.ok()) return Annotate(lengths.status(), path);
  return lengths;
}

absl::Status PlanForLengths(const std::string& path, Constraints& constraints) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Lengths> all, ReadLengths(path));
  double prompts = 0, answers = 0;
  int64_t longest = 0;
  for (const Lengths& lengths : all) {
    prompts += static_cast<double>(lengths.prompt);
    answers += static_cast<double>(lengths.answer);
    longest = std::max(longest, lengths.prompt + lengths.answer);
  }
  const auto mean = [&](double sum) {
    return std::max<int64_t>(1, std::llround(sum / static_cast<double>(all.size())));
  };
  constraints.goal.workload.prompt_tokens = mean(prompts);
  constraints.goal.workload.output_tokens = mean(answers);
  if (constraints.context_length == 0) constraints.context_length = longest;
  if (constraints.context_length >= longest) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, " has ", longest,
                                                 " tokens of one request, and --context-length is ",
                                                 constraints.context_length));
}

}  // namespace skein::plan

// Cuts text into pre-tokens. BPE never merges across their bounds.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/regex.h"

namespace skein::model {

// GPT-2's pattern, which a ByteLevel pre-tokenizer with use_regex has.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// One step; a step works on each piece that the one before it left.
struct PreTokenizerStep {
  bool add_prefix_space = false;  // first puts " " before a piece that does not begin with one
  std::optional<Regex> regex;     // then cuts it
  bool keep_matches = true;
  bool keep_gaps = true;
};

// The pieces of a text: views of it, and of copies that had to be made.
struct PreTokens {
  std::vector<std::string_view> pieces;
  std::deque<std::string> copies;
};

// Immutable; any thread may use it. Costs time linear in the text for patterns that are.
class PreTokenizer {
 public:
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {}

  // `text` is valid UTF-8 and must outlive the pieces. InvalidArgument as Regex::Cut says.
  absl::StatusOr<PreTokens> Cut(std::string_view text) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace skein::model

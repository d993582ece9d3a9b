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

// What a match of a step's pattern becomes.
enum class SplitBehavior {
  kIsolated,            // a piece of its own
  kRemoved,             // nothing
  kMergedWithPrevious,  // the end of the gap before it
  kMergedWithNext,      // the begin of the gap behind it
  kContiguous,          // a piece with those that follow it at once
};

// One step; a step works on each piece that the one before it left.
struct PreTokenizerStep {
  // First replaces each " " by it, where it is not empty.
  std::string space_mark;
  // Then puts it (or " ", where it is empty) before a piece that does not begin with it.
  enum class Prefix { kNever, kFirst, kAlways } prefix = Prefix::kNever;  // kFirst: of a text
  std::optional<Regex> regex;                                             // then cuts
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // what is between the matches is what matches
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

  // `text` is valid UTF-8 and must outlive the pieces; `first`: a text begins with it.
  // InvalidArgument as Regex::Cut says.
  absl::StatusOr<PreTokens> Cut(std::string_view text, bool first) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace skein::model

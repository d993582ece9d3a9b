// What becomes of a text before it is cut into pre-tokens: Unicode forms, replacements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/range.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/rewrite.h"
#include "model/tokenizer/sentence_piece_normalizer.h"

namespace skein::model {

// Immutable; any thread may use it. Costs time linear in the text.
class Normalizer {
 public:
  enum class Form : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
  // Each letter's lower case, whatever stands around it.
  struct Lowercase {};
  // Takes white space off the ends.
  struct Strip {
    bool left = true;
    bool right = true;
  };
  // Before a text that is not empty.
  struct Prepend {
    std::string text;
  };
  struct Replace {
    std::string text;  // is looked for as it is
    std::string by;
  };
  struct ReplaceMatches {
    Regex pattern;
    std::string by;
  };
  using Step = std::variant<Form, Lowercase, Strip, Prepend, Replace, ReplaceMatches,
                            SentencePieceNormalizer>;

  explicit Normalizer(std::vector<Step> steps = {}) : steps_(std::move(steps)) {}

  struct Result : MarkedText {
    // The first character is made of that which `text` began with, or was put before it.
    bool keeps_begin = true;
  };

  bool empty() const { return steps_.empty(); }
  // `text` is valid UTF-8; `at_begin`: what is encoded begins with it; `marked`: bytes that are
  // followed into the result, sorted and disjoint. InvalidArgument where it passes 2 GiB, or has
  // more combining marks behind each other than any language.
  absl::StatusOr<Result> Apply(std::string_view text, bool at_begin = true,
                               absl::Span<const Range> marked = {}) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace skein::model

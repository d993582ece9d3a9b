#include "model/tokenizer/pre_tokenizer.h"

#include "base/status_macros.h"

namespace skein::model {

absl::StatusOr<PreTokens> PreTokenizer::Cut(std::string_view text) const {
  PreTokens result;
  if (!text.empty()) result.pieces.push_back(text);
  for (const PreTokenizerStep& step : steps_) {
    if (step.add_prefix_space) {
      for (std::string_view& piece : result.pieces) {
        if (piece[0] == ' ') continue;
        piece = result.copies.emplace_back(" ").append(piece);
      }
    }
    if (!step.regex.has_value()) continue;
    SKEIN_ASSIGN_OR_RETURN(result.pieces,
                           step.regex->Cut(result.pieces, step.keep_matches, step.keep_gaps));
  }
  return result;
}

}  // namespace skein::model

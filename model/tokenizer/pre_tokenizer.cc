#include "model/tokenizer/pre_tokenizer.h"

#include "absl/strings/str_replace.h"
#include "base/status_macros.h"

namespace skein::model {
namespace {

using Pieces = std::vector<std::string_view>;

// Marks and prefixes of one piece; a view of it, or of a copy.
std::string_view Mark(const PreTokenizerStep& step, std::string_view piece, bool first,
                      std::deque<std::string>& copies) {
  const std::string mark = step.space_mark.empty() ? " " : step.space_mark;
  if (mark != " " && piece.find(' ') != piece.npos) {
    piece = copies.emplace_back(absl::StrReplaceAll(std::string(piece), {{" ", mark}}));
  }
  using Prefix = PreTokenizerStep::Prefix;
  const bool prefixed = step.prefix == Prefix::kAlways || (step.prefix == Prefix::kFirst && first);
  if (prefixed && !piece.starts_with(mark)) piece = copies.emplace_back(mark).append(piece);
  return piece;
}

// Joins pieces that lie behind each other in one text.
void Join(std::string_view& piece, std::string_view next) {
  piece = {piece.data(), piece.size() + next.size()};
}

// Of matches and gaps, each the other where `match_first` says.
absl::StatusOr<Pieces> Split(const Regex& regex, SplitBehavior behavior, const Pieces& texts) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return regex.Cut(texts, /*keep_matches=*/true, /*keep_gaps=*/true);
    case SplitBehavior::kRemoved:
      return regex.Cut(texts, /*keep_matches=*/false, /*keep_gaps=*/true);
    case SplitBehavior::kGapsRemoved:
      return regex.Cut(texts, /*keep_matches=*/true, /*keep_gaps=*/false);
    default:
      break;
  }
  Pieces result;
  for (const std::string_view text : texts) {
    SKEIN_ASSIGN_OR_RETURN(const Pieces matches,
                           regex.Cut({text}, /*keep_matches=*/true, /*keep_gaps=*/false));
    const char* at = text.data();
    const char* const end = at + text.size();
    bool open = false;  // the last piece takes what follows it
    const auto add = [&](std::string_view piece, bool joins, bool takes_next) {
      if (piece.empty()) return;
      if (joins) {
        Join(result.back(), piece);
      } else {
        result.push_back(piece);
      }
      open = takes_next;
    };
    bool after_match = false;
    for (const std::string_view match : matches) {
      const std::string_view gap(at, static_cast<size_t>(match.data() - at));
      add(gap, open && behavior == SplitBehavior::kMergedWithNext,
          behavior == SplitBehavior::kMergedWithPrevious);
      if (!gap.empty()) after_match = false;
      switch (behavior) {
        case SplitBehavior::kMergedWithPrevious:
          add(match, open, false);
          break;
        case SplitBehavior::kMergedWithNext:
          add(match, false, true);
          break;
        default:
          add(match, after_match, false);
          break;
      }
      after_match = true;
      at = match.data() + match.size();
    }
    add({at, static_cast<size_t>(end - at)}, open && behavior == SplitBehavior::kMergedWithNext,
        false);
  }
  return result;
}

}  // namespace

absl::StatusOr<PreTokens> PreTokenizer::Cut(std::string_view text, bool first) const {
  PreTokens result;
  if (!text.empty()) result.pieces.push_back(text);
  for (const PreTokenizerStep& step : steps_) {
    bool is_first = first;
    for (std::string_view& piece : result.pieces) {
      piece = Mark(step, piece, is_first, result.copies);
      is_first = false;
    }
    if (!step.regex.has_value()) continue;
    SKEIN_ASSIGN_OR_RETURN(result.pieces, Split(*step.regex, step.behavior, result.pieces));
  }
  return result;
}

}  // namespace skein::model

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

// Appends the text of `next`, which follows that of `piece` at once.
void Join(std::string_view& piece, std::string_view next) {
  piece = {piece.data(), piece.size() + next.size()};
}

struct Section {
  std::string_view text;  // not empty
  bool is_match = false;
};

// `text` as the pattern cuts it.
absl::StatusOr<std::vector<Section>> Sections(const PreTokenizerStep& step, std::string_view text) {
  SKEIN_ASSIGN_OR_RETURN(const Pieces matches,
                         step.regex->Cut({text}, /*keep_matches=*/true, /*keep_gaps=*/false));
  std::vector<Section> sections;
  const char* at = text.data();
  const auto add = [&](const char* end, bool is_match) {
    if (end > at)
      sections.push_back({{at, static_cast<size_t>(end - at)}, is_match != step.invert});
    at = end;
  };
  for (const std::string_view match : matches) {
    add(match.data(), false);
    add(match.data() + match.size(), true);
  }
  add(text.data() + text.size(), false);
  return sections;
}

void Merge(const std::vector<Section>& sections, SplitBehavior behavior, Pieces& pieces) {
  bool joins = false;  // the next section is of the last piece
  for (size_t i = 0; i < sections.size(); ++i) {
    const auto& [text, is_match] = sections[i];
    if (joins) {
      Join(pieces.back(), text);
    } else {
      pieces.push_back(text);
    }
    const bool next_matches = i + 1 < sections.size() && sections[i + 1].is_match;
    switch (behavior) {
      case SplitBehavior::kMergedWithPrevious:
        joins = !is_match && next_matches;
        break;
      case SplitBehavior::kMergedWithNext:
        joins = is_match && !next_matches;
        break;
      default:  // kContiguous
        joins = is_match == next_matches;
        break;
    }
  }
}

absl::StatusOr<Pieces> Split(const PreTokenizerStep& step, const Pieces& texts) {
  switch (step.behavior) {
    case SplitBehavior::kIsolated:
      return step.regex->Cut(texts, /*keep_matches=*/true, /*keep_gaps=*/true);
    case SplitBehavior::kRemoved:
      return step.regex->Cut(texts, /*keep_matches=*/step.invert, /*keep_gaps=*/!step.invert);
    default:
      break;
  }
  Pieces result;
  for (const std::string_view text : texts) {
    SKEIN_ASSIGN_OR_RETURN(const std::vector<Section> sections, Sections(step, text));
    Merge(sections, step.behavior, result);
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
    SKEIN_ASSIGN_OR_RETURN(result.pieces, Split(step, result.pieces));
  }
  return result;
}

}  // namespace skein::model

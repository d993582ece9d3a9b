#include "model/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "model/tokenizer/white_space.h"
#include "model/tokenizer/word_bounds.h"

namespace skein::model {

namespace {

// The first range that ends behind `at`.
absl::Span<const Range>::const_iterator NextRange(absl::Span<const Range> ranges, size_t at) {
  return std::partition_point(ranges.begin(), ranges.end(), [at](const Range& range) {
    return static_cast<size_t>(range.end) <= at;
  });
}

// What `ranges` have of [begin, end), from there on.
std::vector<Range> Within(absl::Span<const Range> ranges, size_t begin, size_t end) {
  std::vector<Range> within;
  for (auto at = NextRange(ranges, begin); at != ranges.end(); ++at) {
    const Range part = {std::max(at->begin, static_cast<int64_t>(begin)),
                        std::min(at->end, static_cast<int64_t>(end))};
    if (part.begin >= part.end) break;
    within.push_back(
        {part.begin - static_cast<int64_t>(begin), part.end - static_cast<int64_t>(begin)});
  }
  return within;
}

bool Touches(absl::Span<const Range> ranges, size_t begin, size_t end) {
  const auto next = NextRange(ranges, begin);
  return next != ranges.end() && static_cast<size_t>(next->begin) < end;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, Normalizer normalizer)
    : normalizer_(std::move(normalizer)) {
  for (AddedToken& token : tokens) {
    (token.normalized ? normalized_ : verbatim_).Add(std::move(token));
  }
  verbatim_.Sort();
  normalized_.Sort();
}

absl::StatusOr<AddedTokens::Pieces> AddedTokens::Cut(std::string_view text, bool parse_special,
                                                     absl::Span<const Range> plain_bytes) const {
  std::vector<Piece> verbatim;
  verbatim_.Cut(text, parse_special, plain_bytes, verbatim);
  Pieces result;
  for (const Piece& piece : verbatim) {
    if (piece.id >= 0) {
      result.pieces.push_back(piece);
      continue;
    }
    std::string_view plain = piece.text;
    const auto offset = static_cast<size_t>(plain.data() - text.data());
    std::vector<Range> marked = Within(plain_bytes, offset, offset + plain.size());
    bool begins = &piece == &verbatim.front();
    if (!normalizer_.empty()) {
      SKEIN_ASSIGN_OR_RETURN(Normalizer::Result normalized,
                             normalizer_.Apply(plain, begins, marked));
      begins &= normalized.keeps_begin;
      marked = std::move(normalized.marked);
      plain = result.copies.emplace_back(std::move(normalized.text));
    }
    normalized_.Cut(plain, parse_special, marked, result.pieces);
    result.begins_text |= begins && !result.pieces.empty() && result.pieces.front().id < 0;
  }
  return result;
}

void AddedTokens::Set::Add(AddedToken token) {
  begins_[static_cast<unsigned char>(token.content[0])] = true;
  tokens_.push_back(std::move(token));
}

void AddedTokens::Set::Sort() {
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  // Longest() needs them to differ.
  tokens_.erase(
      std::unique(tokens_.begin(), tokens_.end(),
                  [](const AddedToken& a, const AddedToken& b) { return a.content == b.content; }),
      tokens_.end());
}

const AddedToken* AddedTokens::Set::Longest(std::string_view text) const {
  // [first, last) begin with the first `depth` bytes of the text.
  auto first = tokens_.begin();
  auto last = tokens_.end();
  const AddedToken* longest = nullptr;
  for (size_t depth = 0; first != last; ++depth) {
    if (first->content.size() == depth) {
      longest = &*first;
      ++first;
    }
    if (depth == text.size()) break;
    const auto byte = static_cast<unsigned char>(text[depth]);
    const auto byte_of = [depth](const AddedToken& token) {
      return static_cast<unsigned char>(token.content[depth]);
    };
    first = std::partition_point(first, last, [&](const auto& t) { return byte_of(t) < byte; });
    last = std::partition_point(first, last, [&](const auto& t) { return byte_of(t) == byte; });
  }
  return longest;
}

void AddedTokens::Set::Cut(std::string_view text, bool parse_special, absl::Span<const Range> plain,
                           std::vector<Piece>& pieces) const {
  size_t done = 0;  // text before it was cut
  const auto add_text = [&](size_t end) {
    if (end > done) pieces.push_back({-1, text.substr(done, end - done)});
  };
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token =
        begins_[static_cast<unsigned char>(text[at])] ? Longest(text.substr(at)) : nullptr;
    // What follows in `plain` hides no special token that ends before it.
    if (token != nullptr && token->special && parse_special &&
        Touches(plain, at, at + token->content.size())) {
      const auto begin = static_cast<size_t>(NextRange(plain, at)->begin);
      token = begin > at ? Longest(text.substr(at, begin - at)) : nullptr;
    }
    if (token == nullptr) {
      ++at;
      continue;
    }
    const size_t end = at + token->content.size();
    const bool inside_word = token->single_word &&
                             (EndsWithWord(text.substr(0, at)) || BeginsWithWord(text.substr(end)));
    if ((!token->special || parse_special) && !inside_word) {
      add_text(token->lstrip ? WhiteSpaceBegin(text, at, done) : at);
      pieces.push_back({token->id, {}});
      done = std::max(done, token->rstrip ? WhiteSpaceEnd(text, end) : end);
    }
    at = end;  // what a special token would have taken is no other token's
  }
  add_text(text.size());
}

}  // namespace skein::model

#include "model/tokenizer/added_tokens.h"

#include <algorithm>
#include <initializer_list>

namespace skein::model {
namespace {

// Bytes of the white space character (Unicode White_Space) that `text` begins with; 0: none.
size_t LeadingSpace(std::string_view text) {
  if (text.empty()) return 0;
  if (text[0] == ' ' || (text[0] >= '\t' && text[0] <= '\r')) return 1;
  for (const std::string_view space :
       {"\u0085", "\u00A0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005",
        "\u2006", "\u2007", "\u2008", "\u2009", "\u200A", "\u2028", "\u2029", "\u202F", "\u205F",
        "\u3000"}) {
    if (text.substr(0, space.size()) == space) return space.size();
  }
  return 0;
}

size_t SpaceEnd(std::string_view text, size_t at) {
  while (const size_t size = LeadingSpace(text.substr(at))) at += size;
  return at;
}

// The begin of the white space that ends at `at`, not before `least`.
size_t SpaceBegin(std::string_view text, size_t at, size_t least) {
  while (at > least) {
    size_t begin = at - 1;
    while (begin > least && (text[begin] & 0xC0) == 0x80) --begin;
    if (LeadingSpace(text.substr(begin)) != at - begin) break;
    at = begin;
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : tokens) (token.normalized ? normalized_ : verbatim_).Add(token);
  verbatim_.Sort();
  normalized_.Sort();
}

std::vector<AddedTokens::Piece> AddedTokens::Cut(std::string_view text, bool parse_special) const {
  std::vector<Piece> verbatim;
  verbatim_.Cut(text, parse_special, verbatim);
  std::vector<Piece> pieces;
  for (const Piece& piece : verbatim) {
    if (piece.id >= 0) {
      pieces.push_back(piece);
    } else {
      normalized_.Cut(piece.text, parse_special, pieces);
    }
  }
  return pieces;
}

void AddedTokens::Set::Add(const AddedToken& token) {
  tokens_.push_back(token);
  begins_[static_cast<unsigned char>(token.content[0])] = true;
}

void AddedTokens::Set::Sort() {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
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

void AddedTokens::Set::Cut(std::string_view text, bool parse_special,
                           std::vector<Piece>& pieces) const {
  size_t done = 0;  // text before it was cut
  const auto add_text = [&](size_t end) {
    if (end > done) pieces.push_back({-1, text.substr(done, end - done)});
  };
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token =
        begins_[static_cast<unsigned char>(text[at])] ? Longest(text.substr(at)) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    const size_t end = at + token->content.size();
    if (!token->special || parse_special) {
      add_text(token->lstrip ? SpaceBegin(text, at, done) : at);
      pieces.push_back({token->id, {}});
      done = std::max(done, token->rstrip ? SpaceEnd(text, end) : end);
    }
    at = end;  // what a special token would have taken is no other token's
  }
  add_text(text.size());
}

}  // namespace skein::model

#include "model/tokenizer/sentence_piece_normalizer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

constexpr size_t kMaxMatchBytes = 256;
constexpr size_t kMaxBytes = (size_t{1} << 31) - 1;

// Parts of a unit of the double array.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t LabelOf(uint32_t unit) { return unit & 0x800000FF; }
uint32_t OffsetOf(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

bool IsInsideCharacter(std::string_view text, size_t at) {
  return at < text.size() && (text[at] & 0xC0) == 0x80;
}

}  // namespace

absl::StatusOr<CharsMap> CharsMap::Parse(std::string_view bytes) {
  CharsMap map;
  if (bytes.empty()) return map;
  uint32_t size = 0;
  if (bytes.size() >= sizeof(size)) std::memcpy(&size, bytes.data(), sizeof(size));
  if (size == 0 || size % sizeof(uint32_t) != 0 || size > bytes.size() - sizeof(size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("precompiled_charsmap has ", bytes.size(), " bytes, but a trie of ", size));
  }
  map.units_.resize(size / sizeof(uint32_t));
  std::memcpy(map.units_.data(), bytes.data() + sizeof(size), size);
  map.texts_ = bytes.substr(sizeof(size) + size);
  map.texts_ += '\0';  // ends the last one
  if (FindInvalidUtf8(map.texts_) != std::string_view::npos) {
    return absl::InvalidArgumentError("precompiled_charsmap has texts that are not UTF-8");
  }
  return map;
}

CharsMap::Match CharsMap::Find(std::string_view text) const {
  Match match;
  if (units_.empty()) return match;
  // Nodes beyond the array, and values that are no texts' begins, are of a broken file, and match
  // nothing.
  uint32_t node = OffsetOf(units_[0]);
  for (size_t i = 0; i < std::min(text.size(), kMaxMatchBytes); ++i) {
    const auto label = static_cast<unsigned char>(text[i]);
    node ^= label;
    if (node >= units_.size() || LabelOf(units_[node]) != label) break;
    const uint32_t unit = units_[node];
    node ^= OffsetOf(unit);
    if (!HasLeaf(unit) || node >= units_.size()) continue;
    const uint32_t value = ValueOf(units_[node]);
    if (value >= texts_.size() || IsInsideCharacter(texts_, value) ||
        IsInsideCharacter(text, i + 1)) {
      continue;
    }
    const std::string_view by = std::string_view(texts_).substr(value, kMaxMatchBytes + 1);
    const size_t end = by.find('\0');
    if (end != by.npos) match = {i + 1, by.substr(0, end)};
  }
  return match;
}

SentencePieceNormalizer::SentencePieceNormalizer(Options options) : options_(std::move(options)) {
  for (const std::string& symbol : options_.symbols) symbols_.Add(symbol, 0);
  options_.symbols.clear();
}

SentencePieceNormalizer::Unit SentencePieceNormalizer::Next(std::string_view text) const {
  if (const size_t size = symbols_.LongestPrefix(text); size > 0) {
    return {size, text.substr(0, size)};
  }
  if (const CharsMap::Match match = options_.map.Find(text); match.size > 0) {
    return {match.size, match.by};
  }
  size_t end = 0;
  ReadCodePoint(text, end);
  return {end, text.substr(0, end)};
}

absl::StatusOr<MarkedText> SentencePieceNormalizer::Apply(const MarkedText& from,
                                                          bool at_begin) const {
  Rewrite rewrite(from);
  const auto rest = [&] { return std::string_view(from.text).substr(rewrite.at()); };
  if (options_.remove_extra_whitespaces) {
    while (!rest().empty()) {
      const Unit unit = Next(rest());
      if (unit.by != " ") break;
      rewrite.Replace(rewrite.at() + unit.size, "");
    }
  }
  if (rest().empty()) return MarkedText();
  if (options_.add_dummy_prefix && (at_begin || !options_.prefix_at_begin_only)) {
    rewrite.Replace(rewrite.at(), kSpaceMark);
  }
  bool after_space = options_.remove_extra_whitespaces;
  std::string made;
  while (!rest().empty()) {
    const Unit unit = Next(rest());
    std::string_view by = unit.by;
    while (after_space && by.starts_with(' ')) by.remove_prefix(1);
    made.clear();
    for (const char c : by) {
      if (c == ' ') {
        made += kSpaceMark;
      } else {
        made += c;
      }
    }
    if (!by.empty()) after_space = options_.remove_extra_whitespaces && by.ends_with(' ');
    rewrite.Replace(rewrite.at() + unit.size, made);
    if (rewrite.made().size() > kMaxBytes) {
      return absl::InvalidArgumentError("text passes 2 GiB when it is normalised");
    }
  }
  MarkedText result = rewrite.Take();
  if (options_.remove_extra_whitespaces) {
    while (result.text.ends_with(kSpaceMark)) {
      result.text.resize(result.text.size() - kSpaceMark.size());
    }
  }
  return result;
}

}  // namespace skein::model

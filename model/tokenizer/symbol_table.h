// Text written as one byte a code point, so that a regular expression over it needs no Unicode.
//
// ASCII stands for itself. All other code points that a pattern cannot tell apart share a symbol,
// 0x80 or above.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/code_point_set.h"

namespace skein::model {

// Immutable; any thread may use it. Has some 30 to 100 KB.
class SymbolTable {
 public:
  // Makes a table that tells apart characters that differ in which of `sets` they are in.
  // Unimplemented when that gives more than 128 kinds of characters beyond ASCII.
  static absl::StatusOr<SymbolTable> Create(const std::vector<CodePointSet>& sets);

  // The symbols of the members of `set`, which is one of the sets that the table was made for.
  std::vector<uint8_t> Symbols(const CodePointSet& set) const;

  // The symbols of `text`, valid UTF-8: the text itself when it is ASCII, else written to `buffer`.
  std::string_view Write(std::string_view text, std::string& buffer) const;

 private:
  static constexpr uint32_t kBlock = 256;

  uint8_t Symbol(uint32_t code_point) const {
    return blocks_[index_[code_point / kBlock]][code_point % kBlock];
  }

  // Code points in blocks, equal ones kept once.
  std::array<uint16_t, kCodePoints / kBlock> index_ = {};
  std::vector<std::array<uint8_t, kBlock>> blocks_;
  std::vector<uint32_t> examples_;  // a code point of each symbol from 0x80
};

// Offsets of symbols as offsets in the text that they were written from.
class TextOffsets {
 public:
  TextOffsets(std::string_view text, std::string_view symbols)
      : text_(text), same_(text.size() == symbols.size()) {}

  // The offset in the text where symbol `at` begins. No call's `at` is below the one before.
  size_t Of(size_t at) {
    if (same_) return at;
    for (; symbol_ < at; ++symbol_) {
      const auto lead = static_cast<uint8_t>(text_[byte_]);
      byte_ += 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0);
    }
    return byte_;
  }

 private:
  std::string_view text_;
  bool same_;  // ASCII
  size_t symbol_ = 0;
  size_t byte_ = 0;
};

}  // namespace skein::model

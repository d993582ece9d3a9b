// What SentencePiece does to a text before its model: replaces characters by a compiled table,
// joins white space, marks spaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/byte_trie.h"
#include "model/tokenizer/rewrite.h"

namespace skein::model {

// Replacements as a model's `precompiled_charsmap` has them: the bytes of a double-array trie (Yata
// et al., "Compact dynamic double-array", as darts-clone lays it out) of 32-bit units, their count
// before them, and NUL-ended texts behind, at the offsets that are the trie's values. Immutable;
// any thread may use it.
class CharsMap {
 public:
  CharsMap() = default;  // replaces nothing
  // InvalidArgument where the sizes do not fit, or texts are not UTF-8.
  static absl::StatusOr<CharsMap> Parse(std::string_view bytes);

  // What replaces the longest prefix of `text` that the map has, and the bytes of that; 0: none.
  // Both have at most 256 bytes; those of SentencePiece's own maps have some 40.
  struct Match {
    size_t size = 0;
    std::string_view by;
  };
  Match Find(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string texts_;
};

// Immutable; any thread may use it. Costs time linear in the text.
class SentencePieceNormalizer {
 public:
  struct Options {
    CharsMap map;
    // Stay as they are; the longest counts.
    std::vector<std::string> symbols;
    bool add_dummy_prefix = true;          // a space before a text that is not empty,
    bool prefix_at_begin_only = false;     // and not before what follows a special token
    bool remove_extra_whitespaces = true;  // at both ends, and all but one of a run
  };

  explicit SentencePieceNormalizer(Options options);

  // `text` is valid UTF-8; `at_begin`: a text begins with it. InvalidArgument where it passes 2
  // GiB.
  absl::StatusOr<MarkedText> Apply(const MarkedText& text, bool at_begin) const;

 private:
  struct Unit {
    size_t size;  // bytes of the text
    std::string_view by;
  };
  // What comes of the text's begin. `text` is not empty.
  Unit Next(std::string_view text) const;

  Options options_;
  ByteTrie symbols_;
};

}  // namespace skein::model

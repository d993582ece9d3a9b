// Tokens that are found in the text before anything cuts it, and the normalizer, behind which some
// of them are looked for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/range.h"
#include "model/tokenizer/normalizer.h"

namespace skein::model {

// Bounds the time that looking for added tokens takes; the longest in use have 50 bytes.
inline constexpr size_t kMaxAddedTokenBytes = 256;

struct AddedToken {
  std::string content;  // UTF-8, not empty
  int32_t id = 0;
  bool special = false;
  bool lstrip = false;  // takes the white space before it, too
  bool rstrip = false;  // takes the white space after it, too
  // Is plain text beside a character of a word: a letter, mark, decimal digit, joiner or connector.
  bool single_word = false;
  // Is looked for in what the others leave, when that is normalised; `content` is normalised, too.
  bool normalized = false;
};

// Immutable; any thread may use it.
class AddedTokens {
 public:
  struct Piece {
    int32_t id = -1;        // of the token; -1: plain text
    std::string_view text;  // plain text, normalised, not empty
  };
  // Views of the text, and of copies that had to be made.
  struct Pieces {
    std::vector<Piece> pieces;
    std::deque<std::string> copies;
    // The first piece is plain text whose first character the text begins with.
    bool begins_text = false;
  };

  AddedTokens(std::vector<AddedToken> tokens, Normalizer normalizer);

  // Cuts `text` (valid UTF-8), which must outlive the pieces, at the leftmost, longest tokens.
  // Special tokens stay plain text unless `parse_special`, and where they touch a byte of `plain`
  // (sorted, disjoint), or in normalised text one that was made of such, or a place where such left
  // nothing. Costs O(bytes of the longest token) a byte. Errors are
  // Normalizer::Apply's.
  absl::StatusOr<Pieces> Cut(std::string_view text, bool parse_special,
                             absl::Span<const Range> plain = {}) const;

 private:
  // Tokens that are looked for together.
  class Set {
   public:
    void Add(AddedToken token);
    void Sort();
    void Cut(std::string_view text, bool parse_special, absl::Span<const Range> plain,
             std::vector<Piece>& pieces) const;

   private:
    // The longest token that `text` begins with; null: none.
    const AddedToken* Longest(std::string_view text) const;

    std::vector<AddedToken> tokens_;  // sorted by content
    std::array<bool, 256> begins_ = {};
  };

  Set verbatim_;
  Set normalized_;
  Normalizer normalizer_;
};

}  // namespace skein::model

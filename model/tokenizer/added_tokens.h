// Tokens that are found in the text before anything else looks at it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace skein::model {

struct AddedToken {
  std::string content;  // UTF-8, not empty
  int32_t id = 0;
  bool special = false;
  bool lstrip = false;      // takes the white space before it, too
  bool rstrip = false;      // takes the white space after it, too
  bool normalized = false;  // is looked for in what the other tokens leave
};

// Immutable; any thread may use it.
class AddedTokens {
 public:
  struct Piece {
    int32_t id = -1;        // of the token; -1: plain text
    std::string_view text;  // plain text, not empty
  };

  explicit AddedTokens(const std::vector<AddedToken>& tokens);

  // Cuts `text` (valid UTF-8) at the leftmost, longest tokens. Special tokens stay plain text
  // unless `parse_special`. Costs O(bytes of the longest token) a byte.
  std::vector<Piece> Cut(std::string_view text, bool parse_special) const;

 private:
  // Tokens that are looked for together.
  class Set {
   public:
    void Add(const AddedToken& token);
    void Sort();
    void Cut(std::string_view text, bool parse_special, std::vector<Piece>& pieces) const;

   private:
    // The longest token that `text` begins with; null: none.
    const AddedToken* Longest(std::string_view text) const;

    std::vector<AddedToken> tokens_;  // sorted by content
    std::array<bool, 256> begins_ = {};
  };

  Set verbatim_;
  Set normalized_;
};

}  // namespace skein::model

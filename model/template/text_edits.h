// What Python's str methods do, on texts that keep their marks. Offsets are of bytes, counts of
// code points. Linear in the texts; where a result may be far longer than the texts that it is
// made of, a function tells its size first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/template/text.h"

namespace skein::model {

// Where `part` begins at or behind `from`, or npos. Linear, whatever the texts are.
size_t FindBytes(std::string_view text, std::string_view part, size_t from = 0);
// Where the last `part` begins, or npos. Linear.
size_t FindLastBytes(std::string_view text, std::string_view part);

enum class Side { kLeft, kRight, kBoth };

// Without the characters of `chars` (none given: white space) at its ends.
Text Strip(const Text& text, const std::optional<std::string_view>& chars, Side side);

// Parts between `separator` (not empty), or between white space where none is given. At most
// `most` cuts (negative: any number), from the left or from the right.
std::vector<Text> Split(const Text& text, const std::optional<std::string_view>& separator,
                        int64_t most);
std::vector<Text> SplitFromRight(const Text& text, const std::optional<std::string_view>& separator,
                                 int64_t most);
std::vector<Text> SplitLines(const Text& text, bool keep_ends);

// `old_text` may be empty, as in Python; `most` negative: all.
Text Replace(const Text& text, std::string_view old_text, const Text& new_text, int64_t most);
size_t ReplacedSize(const Text& text, std::string_view old_text, const Text& new_text,
                    int64_t most);

Text Join(const Text& separator, const std::vector<Text>& parts);
Text Repeat(const Text& text, int64_t times);

struct Character {
  uint32_t code_point = 0;
  bool is_first = false;
  bool after_cased = false;   // the one before has a case
  bool before_cased = false;  // the one behind has
};
// Each character mapped on its own.
Text MapCharacters(const Text& text, const std::function<std::string(const Character&)>& map);
Text UpperCase(const Text& text);
Text LowerCase(const Text& text);
Text TitleCase(const Text& text);   // str.title
Text Capitalize(const Text& text);  // str.capitalize
Text SwapCase(const Text& text);

// Code points start, start + step, ... before `stop`, which are within the text. step is not 0.
Text SliceCharacters(const Text& text, int64_t start, int64_t stop, int64_t step);

// &, <, >, ' and " as HTML has them.
Text EscapeHtml(const Text& text);

}  // namespace skein::model

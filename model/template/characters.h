// Characters as Python's str sees them: classes, case, white space, and places by code points.
// Texts are valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace skein::model {

bool IsSpace(uint32_t code_point);  // str.isspace
bool IsAlpha(uint32_t code_point);
bool IsDecimal(uint32_t code_point);
bool IsDigit(uint32_t code_point);
bool IsNumeric(uint32_t code_point);
bool IsUpper(uint32_t code_point);
bool IsLower(uint32_t code_point);
bool IsTitle(uint32_t code_point);
bool IsPrintable(uint32_t code_point);
inline bool IsAlphanumeric(uint32_t c) { return IsAlpha(c) || IsNumeric(c); }
inline bool IsCased(uint32_t c) { return IsUpper(c) || IsLower(c) || IsTitle(c); }

// str.isupper, str.islower: cased characters, one at least, are all of that case.
bool IsInCase(std::string_view text, bool upper);

// The character in another case, in UTF-8: some become two or three characters.
std::string Upper(uint32_t code_point);
std::string Lower(uint32_t code_point);
std::string Title(uint32_t code_point);

void AppendUtf8(uint32_t code_point, std::string& out);

// Code points of a text. Linear, at several GB/s.
int64_t CountCharacters(std::string_view text);
// The byte where the code point of this index begins; the text's size where it has no more.
size_t ByteOfCharacter(std::string_view text, int64_t index);
// The byte where the code point that ends at `end` (> 0) begins.
size_t PreviousCharacter(std::string_view text, size_t end);

}  // namespace skein::model

// Reading UTF-8 that may be broken or cut off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace skein::model {

enum class Utf8Kind {
  kCharacter,  // one whole character
  kCutOff,     // all bytes are the beginning of a character whose rest is missing
  kInvalid,    // can belong to no character, whatever follows
};

struct Utf8Unit {
  Utf8Kind kind;
  int size;  // bytes, at least 1
};

// Reads the unit that `bytes` (not empty) begins with. An invalid unit is the maximal subpart that
// Unicode says to replace by one U+FFFD: the longest beginning of a character, or one byte.
Utf8Unit ReadUtf8(std::string_view bytes);

// Offset of the first byte that is not part of a whole character; npos when there is none.
size_t FindInvalidUtf8(std::string_view bytes);

// The code point that begins at `at` of valid UTF-8; `at` moves behind it.
inline uint32_t ReadCodePoint(std::string_view text, size_t& at) {
  const auto byte = [&] { return static_cast<uint32_t>(static_cast<unsigned char>(text[at++])); };
  const uint32_t lead = byte();
  if (lead < 0x80) return lead;
  const int more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  uint32_t code_point = lead & (0x3Fu >> more);
  for (int i = 0; i < more; ++i) code_point = code_point << 6 | (byte() & 0x3Fu);
  return code_point;
}

}  // namespace skein::model

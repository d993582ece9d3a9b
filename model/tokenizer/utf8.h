// Reading UTF-8 that may be broken or cut off.
#pragma once

#include <cstddef>
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

// What `bytes` (not empty) begins with. An invalid unit is the maximal subpart that Unicode says to
// replace by one U+FFFD: the longest beginning of a character, or one byte.
Utf8Unit ReadUtf8(std::string_view bytes);

// Offset of the first byte that is not part of a whole character; npos when there is none.
size_t FindInvalidUtf8(std::string_view bytes);

}  // namespace skein::model

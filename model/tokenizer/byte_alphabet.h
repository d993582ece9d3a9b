// How tokenizers spell bytes and spaces.
//
// Byte-level ones spell bytes as printable characters (GPT-2's alphabet): bytes that are printable
// in Latin-1 stand for themselves, the 68 others for U+0100 onwards, in order. SentencePiece's mark
// spaces, and spell the bytes of what has no token as "<0x0A>".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace skein::model {

// The spelling of one byte: " " is "\u0120", a character of 1 or 2 UTF-8 bytes.
std::string SpellByte(uint8_t byte);

// The bytes that `spelling` stands for; nullopt when it has a character outside of the alphabet.
std::optional<std::string> UnspellBytes(std::string_view spelling);

// What SentencePiece writes for a space.
inline constexpr std::string_view kSpaceMark = "\u2581";

// `text` with spaces for marks.
std::string UnmarkSpaces(std::string_view text);

// Ids by byte; -1: there is no token for it.
using ByteIds = std::array<int32_t, 256>;
inline constexpr ByteIds kNoByteIds = [] {
  ByteIds ids = {};
  ids.fill(-1);
  return ids;
}();

// The byte of a token like "<0x0A>".
std::optional<uint8_t> ByteOfToken(std::string_view token);

}  // namespace skein::model

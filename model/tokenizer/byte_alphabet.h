// How byte-level tokenizers spell bytes as printable characters (GPT-2's alphabet): bytes that are
// printable in Latin-1 stand for themselves, the 68 others for U+0100 onwards, in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace skein::model {

// The spelling of one byte: " " is "\u0120", a character of 1 or 2 UTF-8 bytes.
std::string SpellByte(uint8_t byte);

// The bytes that `spelling` stands for; nullopt when it has a character outside of the alphabet.
std::optional<std::string> UnspellBytes(std::string_view spelling);

}  // namespace skein::model

#include "model/tokenizer/byte_alphabet.h"

#include <array>
#include <charconv>
#include <system_error>

#include "absl/strings/str_replace.h"

namespace skein::model {
namespace {

constexpr int kLastCharacter = 0x100 + 67;  // 68 bytes are not printable

constexpr bool Printable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

struct Alphabet {
  std::array<uint16_t, 256> character_of_byte;
  std::array<int16_t, kLastCharacter + 1> byte_of_character;  // -1: not in the alphabet
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet{};
  for (int16_t& byte : alphabet.byte_of_character) byte = -1;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const int character = Printable(byte) ? byte : next++;
    alphabet.character_of_byte[byte] = static_cast<uint16_t>(character);
    alphabet.byte_of_character[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();
static_assert(kAlphabet.byte_of_character[kLastCharacter] == 0xAD);

}  // namespace

std::string SpellByte(uint8_t byte) {
  const int character = kAlphabet.character_of_byte[byte];
  if (character < 0x80) return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xC0 | character >> 6), static_cast<char>(0x80 | (character & 0x3F))};
}

std::optional<std::string> UnspellBytes(std::string_view spelling) {
  std::string bytes;
  for (size_t i = 0; i < spelling.size(); ++i) {
    int character = static_cast<unsigned char>(spelling[i]);
    if (character >= 0x80) {
      // Two UTF-8 bytes reach U+07FF, more than the alphabet needs.
      if ((character & 0xE0) != 0xC0 || i + 1 == spelling.size()) return std::nullopt;
      character = (character & 0x1F) << 6 | (static_cast<unsigned char>(spelling[++i]) & 0x3F);
    }
    if (character > kLastCharacter || kAlphabet.byte_of_character[character] < 0) {
      return std::nullopt;
    }
    bytes += static_cast<char>(kAlphabet.byte_of_character[character]);
  }
  return bytes;
}

std::string UnmarkSpaces(std::string_view text) {
  return absl::StrReplaceAll(std::string(text), {{std::string(kSpaceMark), " "}});
}

std::optional<uint8_t> ByteOfToken(std::string_view token) {
  uint8_t byte = 0;
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return byte;
}

}  // namespace skein::model

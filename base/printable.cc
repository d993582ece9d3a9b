#include "base/printable.h"

#include <array>
#include <cstdint>

#include "absl/strings/str_format.h"

namespace skein {
namespace {

constexpr std::string_view kCut = "...";

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: `text` begins with no UTF-8 character
};

// The first character; shortest forms only, no surrogates.
Character FirstCharacter(std::string_view text) {
  const auto byte = [&](size_t i) -> uint32_t { return static_cast<uint8_t>(text[i]); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {code, bytes};
}

bool ObeyedByTerminals(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x2028 || code == 0x2029 ||
         (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

std::string Escape(std::string_view text, size_t max_bytes, bool keep_lines) {
  std::string out;
  size_t cut = 0;  // a border between characters that leaves room for kCut
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    const std::string_view bytes = text.substr(0, character.bytes == 0 ? 1 : character.bytes);
    const bool line_end = keep_lines && character.code == '\n' && character.bytes == 1;
    if (line_end || (character.bytes != 0 && !ObeyedByTerminals(character.code))) {
      out.append(bytes);
    } else {
      for (const char byte : bytes)
        absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint8_t>(byte));
    }
    if (out.size() > max_bytes) {
      out.resize(cut);
      return out.append(kCut);
    }
    if (out.size() + kCut.size() <= max_bytes) cut = out.size();
    text.remove_prefix(bytes.size());
  }
  return out;
}

}  // namespace

std::string Printable(std::string_view text, size_t max_bytes) {
  return Escape(text, max_bytes, /*keep_lines=*/false);
}

std::string PrintableLines(std::string_view text, size_t max_bytes) {
  return Escape(text, max_bytes, /*keep_lines=*/true);
}

}  // namespace skein

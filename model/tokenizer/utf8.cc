#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

struct Lead {
  int size;              // bytes of the character; 0: no character begins with this byte
  unsigned char lo, hi;  // of the second byte: keeps out overlong forms, surrogates and > U+10FFFF
};

constexpr Lead LeadOf(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Unit ReadUtf8(std::string_view bytes) {
  const Lead lead = LeadOf(static_cast<unsigned char>(bytes[0]));
  if (lead.size == 0) return {Utf8Kind::kInvalid, 1};
  for (int i = 1; i < lead.size; ++i) {
    if (static_cast<size_t>(i) == bytes.size()) return {Utf8Kind::kCutOff, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte < (i == 1 ? lead.lo : 0x80) || byte > (i == 1 ? lead.hi : 0xBF)) {
      return {Utf8Kind::kInvalid, i};
    }
  }
  return {Utf8Kind::kCharacter, lead.size};
}

size_t FindInvalidUtf8(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Unit unit = ReadUtf8(bytes.substr(at));
    if (unit.kind != Utf8Kind::kCharacter) return at;
    at += unit.size;
  }
  return std::string_view::npos;
}

}  // namespace skein::model

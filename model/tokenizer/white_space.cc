#include "model/tokenizer/white_space.h"

namespace skein::model {
namespace {

// Bytes of the white space character (Unicode White_Space) that `text` begins with; 0: none.
size_t LeadingSpace(std::string_view text) {
  if (text.empty()) return 0;
  if (text[0] == ' ' || (text[0] >= '\t' && text[0] <= '\r')) return 1;
  for (const std::string_view space :
       {"\u0085", "\u00A0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005",
        "\u2006", "\u2007", "\u2008", "\u2009", "\u200A", "\u2028", "\u2029", "\u202F", "\u205F",
        "\u3000"}) {
    if (text.substr(0, space.size()) == space) return space.size();
  }
  return 0;
}

}  // namespace

size_t WhiteSpaceEnd(std::string_view text, size_t at) {
  while (const size_t size = LeadingSpace(text.substr(at))) at += size;
  return at;
}

size_t WhiteSpaceBegin(std::string_view text, size_t at, size_t least) {
  while (at > least) {
    size_t begin = at - 1;
    while (begin > least && (text[begin] & 0xC0) == 0x80) --begin;
    if (LeadingSpace(text.substr(begin)) != at - begin) break;
    at = begin;
  }
  return at;
}

}  // namespace skein::model

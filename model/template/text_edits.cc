#include "model/template/text_edits.h"

#include <algorithm>
#include <cstring>

#include "model/template/characters.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

bool IsStripped(uint32_t character, const std::optional<std::string_view>& chars) {
  if (!chars) return IsSpace(character);
  for (size_t at = 0; at < chars->size();) {
    if (ReadCodePoint(*chars, at) == character) return true;
  }
  return false;
}

uint32_t CharacterAt(std::string_view text, size_t at) { return ReadCodePoint(text, at); }

// The begin of the white space that ends at `end`, or the end of what begins at `at`.
size_t SkipSpace(std::string_view text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    if (!IsSpace(ReadCodePoint(text, next))) break;
    at = next;
  }
  return at;
}

size_t SkipSpaceBack(std::string_view text, size_t end) {
  while (end > 0) {
    const size_t begin = PreviousCharacter(text, end);
    if (!IsSpace(CharacterAt(text, begin))) break;
    end = begin;
  }
  return end;
}

std::vector<Text> SplitAtSpace(const Text& text, int64_t most) {
  const std::string_view bytes = text.bytes();
  std::vector<Text> parts;
  size_t at = SkipSpace(bytes, 0);
  while (at < bytes.size()) {
    if (most >= 0 && std::ssize(parts) == most) {
      parts.push_back(text.Part(at, bytes.size()));
      break;
    }
    size_t end = at;
    while (end < bytes.size()) {
      size_t next = end;
      if (IsSpace(ReadCodePoint(bytes, next))) break;
      end = next;
    }
    parts.push_back(text.Part(at, end));
    at = SkipSpace(bytes, end);
  }
  return parts;
}

std::vector<Text> SplitAtSpaceFromRight(const Text& text, int64_t most) {
  const std::string_view bytes = text.bytes();
  std::vector<Text> parts;
  size_t end = SkipSpaceBack(bytes, bytes.size());
  while (end > 0) {
    if (most >= 0 && std::ssize(parts) == most) {
      parts.push_back(text.Part(0, end));
      break;
    }
    size_t begin = end;
    while (begin > 0) {
      const size_t before = PreviousCharacter(bytes, begin);
      if (IsSpace(CharacterAt(bytes, before))) break;
      begin = before;
    }
    parts.push_back(text.Part(begin, end));
    end = SkipSpaceBack(bytes, begin);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

bool IsLineEnd(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

// A sigma that ends a word has a form of its own.
std::string LowerInWord(const Character& c) {
  if (c.code_point == 0x3A3 && c.after_cased && !c.before_cased) return "\u03C2";
  return Lower(c.code_point);
}

// Python puts the new text before each character, and at the end, where the old one is empty.
template <typename Visit>
void VisitInsertions(std::string_view bytes, int64_t most, const Visit& visit) {
  for (size_t at = 0; most != 0; --most) {
    visit(at);
    if (at == bytes.size()) break;
    ReadCodePoint(bytes, at);
  }
}

}  // namespace

size_t FindBytes(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  // std::string::find may take the product of both sizes.
  const void* const found =
      memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindLastBytes(std::string_view text, std::string_view part) {
  constexpr size_t kShort = 16;
  if (part.size() <= kShort) return text.rfind(part);
  const std::string mirrored(text.rbegin(), text.rend());
  const size_t found = FindBytes(mirrored, std::string(part.rbegin(), part.rend()));
  return found == std::string::npos ? found : text.size() - found - part.size();
}

Text Strip(const Text& text, const std::optional<std::string_view>& chars, Side side) {
  const std::string_view bytes = text.bytes();
  size_t begin = 0;
  size_t end = bytes.size();
  while (side != Side::kRight && begin < end) {
    size_t next = begin;
    if (!IsStripped(ReadCodePoint(bytes, next), chars)) break;
    begin = next;
  }
  while (side != Side::kLeft && end > begin) {
    const size_t before = PreviousCharacter(bytes, end);
    if (!IsStripped(CharacterAt(bytes, before), chars)) break;
    end = before;
  }
  return text.Part(begin, end);
}

std::vector<Text> Split(const Text& text, const std::optional<std::string_view>& separator,
                        int64_t most) {
  if (!separator) return SplitAtSpace(text, most);
  std::vector<Text> parts;
  size_t at = 0;
  while (most < 0 || std::ssize(parts) < most) {
    const size_t found = FindBytes(text.bytes(), *separator, at);
    if (found == std::string::npos) break;
    parts.push_back(text.Part(at, found));
    at = found + separator->size();
  }
  parts.push_back(text.Part(at, text.size()));
  return parts;
}

std::vector<Text> SplitFromRight(const Text& text, const std::optional<std::string_view>& separator,
                                 int64_t most) {
  if (!separator) return SplitAtSpaceFromRight(text, most);
  const std::string& bytes = text.bytes();
  const std::string mirrored(bytes.rbegin(), bytes.rend());
  const std::string wanted(separator->rbegin(), separator->rend());
  std::vector<Text> parts;
  size_t behind = 0;  // what is done, from the right
  while (most < 0 || std::ssize(parts) < most) {
    const size_t found = FindBytes(mirrored, wanted, behind);
    if (found == std::string::npos) break;
    parts.push_back(text.Part(bytes.size() - found, bytes.size() - behind));
    behind = found + wanted.size();
  }
  parts.push_back(text.Part(0, bytes.size() - behind));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> SplitLines(const Text& text, bool keep_ends) {
  const std::string_view bytes = text.bytes();
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = at;
    const uint32_t character = ReadCodePoint(bytes, at);
    if (!IsLineEnd(character)) continue;
    if (character == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    lines.push_back(text.Part(begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < bytes.size()) lines.push_back(text.Part(begin, bytes.size()));
  return lines;
}

Text Replace(const Text& text, std::string_view old_text, const Text& new_text, int64_t most) {
  Text out;
  size_t done = 0;
  if (old_text.empty()) {
    VisitInsertions(text.bytes(), most, [&](size_t at) {
      out.AppendPart(text, done, at);
      out.Append(new_text);
      done = at;
    });
  } else {
    for (; most != 0; --most) {
      const size_t found = FindBytes(text.bytes(), old_text, done);
      if (found == std::string::npos) break;
      out.AppendPart(text, done, found);
      out.Append(new_text);
      done = found + old_text.size();
    }
  }
  out.AppendPart(text, done, text.size());
  return out;
}

size_t ReplacedSize(const Text& text, std::string_view old_text, const Text& new_text,
                    int64_t most) {
  size_t places = 0;
  if (old_text.empty()) {
    VisitInsertions(text.bytes(), most, [&](size_t) { ++places; });
  } else {
    for (size_t at = 0; most != 0; --most) {
      at = FindBytes(text.bytes(), old_text, at);
      if (at == std::string::npos) break;
      at += old_text.size();
      ++places;
    }
  }
  return text.footprint() + places * (new_text.footprint() + sizeof(ByteRange));
}

Text Join(const Text& separator, const std::vector<Text>& parts) {
  Text out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out.Append(separator);
    out.Append(parts[i]);
  }
  return out;
}

Text Repeat(const Text& text, int64_t times) {
  Text out;
  for (int64_t i = 0; i < times; ++i) out.Append(text);
  return out;
}

Text MapCharacters(const Text& text, const std::function<std::string(const Character&)>& map) {
  const std::string_view bytes = text.bytes();
  Text out;
  bool after_cased = false;
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    const uint32_t code_point = ReadCodePoint(bytes, at);
    const bool before_cased = at < bytes.size() && IsCased(CharacterAt(bytes, at));
    out.Append(map({code_point, begin == 0, after_cased, before_cased}), text.OriginOf(begin, at));
    after_cased = IsCased(code_point);
  }
  return out;
}

Text UpperCase(const Text& text) {
  return MapCharacters(text, [](const Character& c) { return Upper(c.code_point); });
}

Text LowerCase(const Text& text) { return MapCharacters(text, LowerInWord); }

Text TitleCase(const Text& text) {
  return MapCharacters(text, [](const Character& c) {
    return c.after_cased ? LowerInWord(c) : Title(c.code_point);
  });
}

Text Capitalize(const Text& text) {
  return MapCharacters(
      text, [](const Character& c) { return c.is_first ? Title(c.code_point) : LowerInWord(c); });
}

Text SwapCase(const Text& text) {
  return MapCharacters(text, [](const Character& c) {
    return IsUpper(c.code_point) ? LowerInWord(c) : Upper(c.code_point);
  });
}

Text SliceCharacters(const Text& text, int64_t start, int64_t stop, int64_t step) {
  if (step > 0 && start >= stop) return Text();
  if (step < 0 && start <= stop) return Text();
  const std::string_view bytes = text.bytes();
  if (step == 1) {
    const size_t begin = ByteOfCharacter(bytes, start);
    return text.Part(begin, begin + ByteOfCharacter(bytes.substr(begin), stop - start));
  }
  std::vector<size_t> begins;
  for (size_t at = 0; at < bytes.size(); ReadCodePoint(bytes, at)) begins.push_back(at);
  begins.push_back(bytes.size());
  Text out;
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    out.AppendPart(text, begins[i], begins[i + 1]);
  }
  return out;
}

Text EscapeHtml(const Text& text) {
  Text out;
  size_t done = 0;
  const std::string& bytes = text.bytes();
  for (size_t at = 0; at < bytes.size(); ++at) {
    const char c = bytes[at];
    const std::string_view escaped = c == '&'    ? "&amp;"
                                     : c == '<'  ? "&lt;"
                                     : c == '>'  ? "&gt;"
                                     : c == '\'' ? "&#39;"
                                     : c == '"'  ? "&#34;"
                                                 : "";
    if (escaped.empty()) continue;
    out.AppendPart(text, done, at);
    out.Append(escaped, text.OriginOf(at, at + 1));
    done = at + 1;
  }
  out.AppendPart(text, done, text.size());
  return out;
}

}  // namespace skein::model

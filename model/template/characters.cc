#include "model/template/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

struct SpecialCase {
  uint32_t code_point;
  const char* upper;
  const char* title;
};

constexpr SpecialCase kSpecialCases[] = {
#include "model/template/special_casing.inc"
};

struct Run {
  uint32_t first;
  uint32_t last;
};

// Digits that are no decimals (superscripts, circled ones and such), by Unicode's Numeric_Type.
constexpr Run kOtherDigits[] = {
    {0x00B2, 0x00B3},   {0x00B9, 0x00B9},   {0x1369, 0x1371},   {0x19DA, 0x19DA},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
    {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
    {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A},
};

// Unicode's Other_Lowercase and Other_Uppercase, as far as they are of the basic plane.
constexpr Run kOtherLower[] = {
    {0x00AA, 0x00AA}, {0x00BA, 0x00BA}, {0x02B0, 0x02B8}, {0x02C0, 0x02C1}, {0x02E0, 0x02E4},
    {0x0345, 0x0345}, {0x037A, 0x037A}, {0x1D2C, 0x1D6A}, {0x1D78, 0x1D78}, {0x1D9B, 0x1DBF},
    {0x2071, 0x2071}, {0x207F, 0x207F}, {0x2090, 0x209C}, {0x2170, 0x217F}, {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D}, {0xA69C, 0xA69D}, {0xA770, 0xA770}, {0xA7F8, 0xA7F9}, {0xAB5C, 0xAB5F},
};
constexpr Run kOtherUpper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

template <size_t kSize>
bool IsIn(const Run (&runs)[kSize], uint32_t code_point) {
  return std::any_of(std::begin(runs), std::end(runs), [&](const Run& run) {
    return run.first <= code_point && code_point <= run.last;
  });
}

utf8proc_category_t CategoryOf(uint32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

const SpecialCase* FindSpecialCase(uint32_t code_point) {
  const auto* found =
      std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), code_point,
                       [](const SpecialCase& a, uint32_t b) { return a.code_point < b; });
  return found != std::end(kSpecialCases) && found->code_point == code_point ? found : nullptr;
}

std::string Utf8(utf8proc_int32_t code_point) {
  std::string out;
  AppendUtf8(static_cast<uint32_t>(code_point), out);
  return out;
}

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

bool IsSpace(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsAlpha(uint32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(uint32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_ND; }

bool IsDigit(uint32_t c) { return IsDecimal(c) || IsIn(kOtherDigits, c); }

bool IsNumeric(uint32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsUpper(uint32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_LU || IsIn(kOtherUpper, c); }

bool IsLower(uint32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_LL || IsIn(kOtherLower, c); }

bool IsTitle(uint32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_LT; }

bool IsPrintable(uint32_t c) {
  if (c == ' ') return true;
  const utf8proc_category_t category = CategoryOf(c);
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

bool IsInCase(std::string_view text, bool upper) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = ReadCodePoint(text, at);
    if (!IsCased(c)) continue;
    if (upper ? !IsUpper(c) : !IsLower(c)) return false;
    any = true;
  }
  return any;
}

std::string Upper(uint32_t c) {
  if (const SpecialCase* special = FindSpecialCase(c)) return special->upper;
  return Utf8(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

std::string Lower(uint32_t c) {
  if (c == 0x130) return "i\u0307";
  return Utf8(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

std::string Title(uint32_t c) {
  if (const SpecialCase* special = FindSpecialCase(c)) return special->title;
  return Utf8(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

void AppendUtf8(uint32_t code_point, std::string& out) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t size =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return !IsContinuation(byte); });
}

size_t ByteOfCharacter(std::string_view text, int64_t index) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (!IsContinuation(text[at]) && index-- == 0) return at;
  }
  return text.size();
}

size_t PreviousCharacter(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && IsContinuation(text[at])) --at;
  return at;
}

}  // namespace skein::model

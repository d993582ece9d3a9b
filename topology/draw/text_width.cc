#include "topology/draw/text_width.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace skein::topology::draw {
namespace {

constexpr char kEllipsis[] = "…";
constexpr char kDot[] = " · ";

// Of ' ' to '~', in hundredths of the size: the larger of DejaVu Sans and Liberation Sans, which is
// as wide as Arial and Helvetica. Others (Segoe UI, San Francisco, Roboto) are narrower.
constexpr uint8_t kRegular[] = {
    32, 41, 46, 84, 64, 96, 78, 28, 40,  40, 50, 84, 32, 37, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64,
    64, 64, 34, 34, 84, 84, 84, 56, 102, 69, 69, 73, 78, 67, 62, 78, 76, 30, 50, 67, 56, 87, 75, 79,
    67, 79, 73, 67, 62, 74, 69, 99, 69,  67, 69, 40, 34, 40, 84, 56, 50, 62, 64, 55, 64, 62, 36, 64,
    64, 28, 28, 58, 28, 98, 64, 62, 64,  64, 42, 53, 40, 64, 60, 82, 60, 60, 53, 64, 34, 64, 84};
constexpr uint8_t kBold[] = {35,  46, 53, 84, 70, 101, 88, 31,  46, 46, 53, 84, 38, 42,  38, 37,
                             70,  70, 70, 70, 70, 70,  70, 70,  70, 70, 40, 40, 84, 84,  84, 62,
                             100, 78, 77, 74, 84, 69,  69, 83,  84, 38, 56, 78, 64, 100, 84, 86,
                             74,  86, 78, 73, 69, 82,  78, 111, 78, 73, 73, 46, 37, 46,  84, 56,
                             50,  68, 72, 60, 72, 68,  44, 72,  72, 35, 35, 67, 35, 105, 72, 69,
                             72,  72, 50, 60, 48, 72,  66, 93,  65, 66, 59, 72, 37, 72,  84};
static_assert(sizeof(kRegular) == '~' - ' ' + 1 && sizeof(kBold) == sizeof(kRegular));

// The bytes of the first character, 1 for what is no UTF-8.
size_t FirstCharacter(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text.front());
  const size_t bytes = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  return bytes < text.size() ? bytes : text.size();
}

// In hundredths of the size.
int WidthOf(std::string_view character, bool bold) {
  const auto lead = static_cast<uint8_t>(character.front());
  if (lead >= ' ' && lead <= '~') return (bold ? kBold : kRegular)[lead - ' '];
  if (character == "·") return 38;
  if (character == "µ") return 74;
  if (character == "×") return 84;
  if (character == kEllipsis) return 100;
  // Letters of Europe, of the Near East and of the world, pictures: none is wider, nearly.
  if (lead < 0xc4) return 110;
  return lead < 0xe0 ? 150 : 210;
}

}  // namespace

double TextWidth(std::string_view text, const Font& font) {
  int64_t width = 0;
  while (!text.empty()) {
    const size_t bytes = FirstCharacter(text);
    width += WidthOf(text.substr(0, bytes), font.bold);
    text.remove_prefix(bytes);
  }
  return static_cast<double>(width) * font.size / 100;
}

std::string Shorten(std::string_view text, const Font& font, double width) {
  if (TextWidth(text, font) <= width) return std::string(text);
  const double room = width - TextWidth(kEllipsis, font);
  if (room < 0) return "";
  size_t kept = 0;
  double used = 0;
  while (kept < text.size()) {
    const size_t bytes = FirstCharacter(text.substr(kept));
    used += TextWidth(text.substr(kept, bytes), font);
    if (used > room) break;
    kept += bytes;
  }
  std::string_view beginning = text.substr(0, kept);
  while (!beginning.empty() && beginning.back() == ' ') beginning.remove_suffix(1);
  return absl::StrCat(std::string(beginning), kEllipsis);
}

std::vector<std::string> Wrap(const std::vector<std::string>& facts, const Font& font,
                              double width) {
  std::vector<std::string> lines;
  for (const std::string& fact : facts) {
    if (!lines.empty()) {
      const std::string longer = absl::StrCat(lines.back(), kDot, fact);
      if (TextWidth(longer, font) <= width) {
        lines.back() = longer;
        continue;
      }
    }
    lines.push_back(Shorten(fact, font, width));
  }
  return lines;
}

}  // namespace skein::topology::draw

#include "base/picture.h"

#include <cstddef>
#include <iterator>

namespace skein {

std::string EscapeXml(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default: {
        const std::string_view three = text.substr(i, 3);
        if (three == "\xef\xbf\xbe" || three == "\xef\xbf\xbf") {
          out += "\xef\xbf\xbd";
          i += 2;
        } else {
          out += static_cast<unsigned char>(text[i]) < 0x20 ? ' ' : text[i];
        }
      }
    }
  }
  return out;
}

const char* SvgColour(int64_t index) {
  static constexpr const char* kColours[] = {"#3568b0", "#b04f00", "#2a7a4b", "#a63a5b",
                                             "#6a52b3", "#0c7480", "#7d6608", "#8a4596"};
  constexpr int64_t kCount = std::size(kColours);
  return kColours[(index % kCount + kCount) % kCount];
}

}  // namespace skein

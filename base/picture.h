// What all pictures share that are written as SVG. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace skein {

// UTF-8 as the text or as an attribute in quotes of XML 1.0. Control characters, for which there is
// no escape, become spaces, and U+FFFE and U+FFFF U+FFFD.
std::string EscapeXml(std::string_view text);

// "#3568b0": one of eight, which repeat. White text is readable on each (contrast 4.5 and more),
// and each stands out from white and from black paper.
const char* SvgColour(int64_t index);

}  // namespace skein

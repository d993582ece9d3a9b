// How wide text is at most, without a font at hand: as wide as in the widest of the usual
// sans-serif system fonts. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace skein::topology::draw {

// A font's size in pixels, and its weight.
struct Font {
  double size = 11;
  bool bold = false;
};

// In pixels. `text` is UTF-8.
double TextWidth(std::string_view text, const Font& font);

// `text`, or as much of its beginning as fits with an ellipsis behind; empty where not even that
// fits.
std::string Shorten(std::string_view text, const Font& font, double width);

// Facts in lines of `width`, with dots between; one that is too long is shortened.
std::vector<std::string> Wrap(const std::vector<std::string>& facts, const Font& font,
                              double width);

}  // namespace skein::topology::draw

// Writes the elements of a picture. A box is <g><rect/>...</g>, and all that stands in it, texts
// and further boxes, is within that g.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/draw/text_width.h"

namespace skein::topology::draw {

// In pixels from the left and from the top.
struct Point {
  double x = 0;
  double y = 0;
};
struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;

  double right() const { return x + width; }
  double bottom() const { return y + height; }
  double middle_x() const { return x + width / 2; }
  double middle_y() const { return y + height / 2; }
};

enum class Anchor { kStart, kMiddle, kEnd };

struct TextStyle {
  Font font;
  Anchor anchor = Anchor::kStart;
  std::string_view kind = "";  // of CSS
};

// Not for several threads. All text is made printable, shortened to the width that it has, and
// escaped; `kind` is a class of CSS.
class Canvas {
 public:
  // Where the points and boxes of what follows begin.
  void MoveTo(Point origin) { origin_ = origin; }

  // `fill` is a colour or empty: as its kind has it. `tooltip` may be empty.
  void Open(std::string_view kind, const Box& box, double radius, std::string_view tooltip = "",
            std::string_view fill = "");
  void Close();
  void Rect(std::string_view kind, const Box& box, double radius);
  // On the base line `at`.
  void Text(const TextStyle& style, Point at, double width, std::string_view text);
  // With round corners.
  void Line(std::string_view kind, const std::vector<Point>& points, double thickness = 1.5);
  // A box with text in its middle.
  void Label(std::string_view kind, const Box& box, double radius, const Font& font,
             std::string_view text, std::string_view tooltip = "", std::string_view fill = "");

  std::string Take() && { return std::move(svg_); }

 private:
  Point origin_;
  std::string svg_;
};

}  // namespace skein::topology::draw

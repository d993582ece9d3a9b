#include "topology/draw/canvas.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/picture.h"
#include "base/printable.h"

namespace skein::topology::draw {
namespace {

constexpr double kCorner = 6;       // the radius of a line's
constexpr double kInset = 4;        // of a label's text
constexpr double kBaseline = 0.36;  // of a font's size, below the middle of its capitals

std::string Number(double value) { return absl::StrCat(std::round(value * 100) / 100); }

std::string RectOf(std::string_view kind, const Box& box, double radius, std::string_view fill) {
  std::string rect = absl::StrCat("<rect class=\"", std::string(kind), "\" x=\"", Number(box.x),
                                  "\" y=\"", Number(box.y), "\" width=\"", Number(box.width),
                                  "\" height=\"", Number(box.height), "\"");
  if (radius > 0) absl::StrAppend(&rect, " rx=\"", Number(radius), "\"");
  if (!fill.empty()) absl::StrAppend(&rect, " fill=\"", std::string(fill), "\"");
  return absl::StrCat(rect, "/>");
}

Box Moved(const Box& box, Point by) { return {box.x + by.x, box.y + by.y, box.width, box.height}; }

// The point `distance` from `from` on the way to `to`.
Point Toward(Point from, Point to, double distance) {
  const double length = std::hypot(to.x - from.x, to.y - from.y);
  if (length == 0) return from;
  return {from.x + (to.x - from.x) * distance / length,
          from.y + (to.y - from.y) * distance / length};
}

}  // namespace

void Canvas::Open(std::string_view kind, const Box& box, double radius, std::string_view tooltip,
                  std::string_view fill) {
  absl::StrAppend(&svg_, "<g>");
  if (!tooltip.empty()) {
    absl::StrAppend(&svg_, "<title>", EscapeXml(Printable(tooltip)), "</title>");
  }
  absl::StrAppend(&svg_, RectOf(kind, Moved(box, origin_), radius, fill), "\n");
}

void Canvas::Close() { absl::StrAppend(&svg_, "</g>\n"); }

void Canvas::Rect(std::string_view kind, const Box& box, double radius) {
  absl::StrAppend(&svg_, RectOf(kind, Moved(box, origin_), radius, ""), "\n");
}

void Canvas::Text(const TextStyle& style, Point at, double width, std::string_view text) {
  const std::string shown = Shorten(Printable(text), style.font, width);
  if (shown.empty()) return;
  absl::StrAppend(&svg_, "<text");
  if (!style.kind.empty()) absl::StrAppend(&svg_, " class=\"", std::string(style.kind), "\"");
  absl::StrAppend(&svg_, " x=\"", Number(origin_.x + at.x), "\" y=\"", Number(origin_.y + at.y),
                  "\" font-size=\"", Number(style.font.size), "\"");
  if (style.font.bold) absl::StrAppend(&svg_, " font-weight=\"600\"");
  if (style.anchor == Anchor::kMiddle) absl::StrAppend(&svg_, " text-anchor=\"middle\"");
  if (style.anchor == Anchor::kEnd) absl::StrAppend(&svg_, " text-anchor=\"end\"");
  absl::StrAppend(&svg_, ">", EscapeXml(shown), "</text>\n");
}

void Canvas::Line(std::string_view kind, const std::vector<Point>& points, double thickness) {
  std::string path;
  for (size_t i = 0; i < points.size(); ++i) {
    const Point at = {origin_.x + points[i].x, origin_.y + points[i].y};
    if (i == 0 || i + 1 == points.size()) {
      absl::StrAppend(&path, i == 0 ? "M" : "L", Number(at.x), ",", Number(at.y));
      continue;
    }
    const Point before = {origin_.x + points[i - 1].x, origin_.y + points[i - 1].y};
    const Point behind = {origin_.x + points[i + 1].x, origin_.y + points[i + 1].y};
    const double room = std::min(std::hypot(before.x - at.x, before.y - at.y),
                                 std::hypot(behind.x - at.x, behind.y - at.y)) /
                        2;
    const double corner = std::min(kCorner, room);
    const Point in = Toward(at, before, corner), out = Toward(at, behind, corner);
    absl::StrAppend(&path, "L", Number(in.x), ",", Number(in.y), "Q", Number(at.x), ",",
                    Number(at.y), " ", Number(out.x), ",", Number(out.y));
  }
  absl::StrAppend(&svg_, "<path class=\"", std::string(kind), "\" d=\"", path, "\" stroke-width=\"",
                  Number(thickness), "\"/>\n");
}

void Canvas::Label(std::string_view kind, const Box& box, double radius, const Font& font,
                   std::string_view text, std::string_view tooltip, std::string_view fill) {
  Open(kind, box, radius, tooltip, fill);
  Text({font, Anchor::kMiddle, absl::StrCat("on-", std::string(kind))},
       {box.middle_x(), box.middle_y() + kBaseline * font.size}, box.width - 2 * kInset, text);
  Close();
}

}  // namespace skein::topology::draw

// Axes and curves of pictures that are written as SVG. Pure; any thread.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace skein {

// Classes of what is drawn, light or dark as the viewer asks: title, name, soft, paper, grid, line,
// area, dot, mark, tick, left.
extern const char* const kPlotStyle;

// A rectangle in pixels, with axes from 0 to the largest values, which are above 0. What is beyond
// them is drawn at the edge.
struct PlotFrame {
  double left, top, width, height;
  double largest_x, largest_y;

  double X(double x) const { return left + std::min(x / largest_x, 1.0) * width; }
  double Y(double y) const { return top + height - std::min(y / largest_y, 1.0) * height; }
};

// Apart by 1, 2 or 5 times a power of ten, at most `ticks` of them in `span`.
double TickStep(double span, double ticks);

// Appends a grid with numbers at round values; those of y are multiplied by `y_scale` and end in
// `y_suffix`.
void DrawAxes(const PlotFrame& frame, std::string& svg, std::string_view y_suffix = "",
              double y_scale = 1);

}  // namespace skein

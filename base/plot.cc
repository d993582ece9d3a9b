#include "base/plot.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace skein {
namespace {

constexpr double kTickWidth = 70;  // in pixels

}  // namespace

const char* const kPlotStyle = R"(<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.name { font-weight: 600 }
.soft { fill: #59636e }
.paper { fill: #ffffff }
.grid { stroke: #d5dbe1; stroke-width: 1 }
.line { fill: none; stroke: #3568b0; stroke-width: 2; stroke-linejoin: round }
.area { fill: #3568b0; fill-opacity: 0.25; stroke: none }
.dot { fill: #b04f00 }
.mark { stroke: #b04f00; stroke-dasharray: 3 3 }
.tick { text-anchor: middle }
.left { text-anchor: end }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.soft { fill: #9198a1 }
.paper { fill: #0d1117 }
.grid { stroke: #30363d }
.line { stroke: #6ea8fe }
.area { fill: #6ea8fe }
.dot { fill: #f0883e }
.mark { stroke: #f0883e }
}
</style>
)";

double TickStep(double span, double ticks) {
  const double wanted = span / ticks;
  const double decade = std::pow(10, std::floor(std::log10(wanted)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * decade >= wanted) return factor * decade;
  }
  return 10 * decade;
}

void DrawAxes(const PlotFrame& frame, std::string& svg, std::string_view y_suffix, double y_scale) {
  const double x_step = TickStep(frame.largest_x, frame.width / kTickWidth);
  const double y_step = TickStep(frame.largest_y, 5);
  for (int i = 0; i * x_step <= frame.largest_x * (1 + 1e-9); ++i) {
    const double x = frame.X(i * x_step);
    absl::StrAppendFormat(&svg,
                          "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>"
                          "<text class=\"tick soft\" x=\"%.1f\" y=\"%.1f\">%.6g</text>\n",
                          x, frame.top, x, frame.top + frame.height, x,
                          frame.top + frame.height + 18, i * x_step);
  }
  for (int i = 0; i * y_step <= frame.largest_y * (1 + 1e-9); ++i) {
    const double y = frame.Y(i * y_step);
    absl::StrAppendFormat(&svg,
                          "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>"
                          "<text class=\"left soft\" x=\"%.1f\" y=\"%.1f\">%.6g%s</text>\n",
                          frame.left, y, frame.left + frame.width, y, frame.left - 8, y + 4,
                          i * y_step * y_scale, y_suffix);
  }
}

}  // namespace skein

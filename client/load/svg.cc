// The picture of a load test.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/picture.h"
#include "client/load/report.h"

namespace skein::client {
namespace {

// All in pixels.
constexpr double kWidth = 1200;
constexpr double kMargin = 64;
constexpr double kGap = 60;  // between panels
constexpr double kTop = 128;
constexpr double kPanelWidth = (kWidth - 2 * kMargin - 2 * kGap) / 3;
constexpr double kPanelHeight = 220;
constexpr double kTimelineTop = kTop + kPanelHeight + 100;
constexpr double kTimelineHeight = 160;
constexpr double kHeight = kTimelineTop + kTimelineHeight + 56;
constexpr double kTickWidth = 70;

constexpr const char* kStyle = R"(<style>
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

// Apart by 1, 2 or 5 times a power of ten, at most `ticks` of them in `span`.
double TickStep(double span, double ticks) {
  const double wanted = span / ticks;
  const double decade = std::pow(10, std::floor(std::log10(wanted)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * decade >= wanted) return factor * decade;
  }
  return 10 * decade;
}

// A rectangle with axes from 0 to the largest values.
struct Frame {
  double left, top, width, height;
  double largest_x, largest_y;

  double X(double x) const { return left + std::min(x / largest_x, 1.0) * width; }
  double Y(double y) const { return top + height - std::min(y / largest_y, 1.0) * height; }
};

void DrawAxes(const Frame& frame, const char* y_suffix, double y_scale, std::string& svg) {
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

// The share of values up to x, in milliseconds, with the percentiles as dots.
void DrawDistribution(int column, const char* name, const Distribution& distribution,
                      absl::Duration limit, std::string& svg) {
  const double cut_ms = distribution.percentile(99) * 1.1e3;
  const Frame frame = {kMargin + column * (kPanelWidth + kGap),
                       kTop,
                       kPanelWidth,
                       kPanelHeight,
                       cut_ms > 0 ? cut_ms : 1.0,
                       1};
  absl::StrAppendFormat(&svg,
                        "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">%s, ms</text>"
                        "<text class=\"soft\" x=\"%.1f\" y=\"%.1f\">p50 %.4g  p90 %.4g  "
                        "p99 %.4g</text>\n",
                        frame.left, frame.top - 32, name, frame.left, frame.top - 12,
                        distribution.percentile(50) * 1e3, distribution.percentile(90) * 1e3,
                        distribution.percentile(99) * 1e3);
  DrawAxes(frame, "%", 100, svg);
  if (distribution.sorted.empty()) return;
  svg += "<polyline class=\"line\" points=\"";
  for (double percent = 0; percent <= 99.5; percent += 0.5) {
    absl::StrAppendFormat(&svg, "%.1f,%.1f ", frame.X(distribution.percentile(percent) * 1e3),
                          frame.Y(percent / 100));
  }
  svg += "\"/>\n";
  const double limit_ms = absl::ToDoubleMilliseconds(limit);
  if (limit_ms <= frame.largest_x) {
    absl::StrAppendFormat(&svg,
                          "<line class=\"mark\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\">"
                          "<title>limit: %.6g ms</title></line>\n",
                          frame.X(limit_ms), frame.top, frame.X(limit_ms), frame.top + frame.height,
                          limit_ms);
  }
  for (const double percent : {50.0, 90.0, 99.0}) {
    const double ms = distribution.percentile(percent) * 1e3;
    absl::StrAppendFormat(&svg,
                          "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>p%.0f: "
                          "%.4g ms</title></circle>\n",
                          frame.X(ms), frame.Y(percent / 100), percent, ms);
  }
}

void DrawThroughput(const LoadTest& test, std::string& svg) {
  constexpr int kParts = 120;
  const double seconds = test.summary.seconds > 0 ? test.summary.seconds : 1;
  const std::vector<double> rates = Throughput(test.records, seconds, kParts);
  const double largest = *std::max_element(rates.begin(), rates.end());
  const Frame frame = {kMargin,         kTimelineTop, kWidth - 2 * kMargin,
                       kTimelineHeight, seconds,      largest > 0 ? largest : 1.0};
  absl::StrAppendFormat(&svg,
                        "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">tokens/s over time, s</text>\n",
                        frame.left, frame.top - 14);
  DrawAxes(frame, "", 1, svg);
  std::string points;
  for (int i = 0; i < kParts; ++i) {
    const double y = frame.Y(rates[static_cast<size_t>(i)]);
    absl::StrAppendFormat(&points, "%.1f,%.1f %.1f,%.1f ", frame.X(seconds * i / kParts), y,
                          frame.X(seconds * (i + 1) / kParts), y);
  }
  absl::StrAppendFormat(&svg, "<polygon class=\"area\" points=\"%.1f,%.1f %s%.1f,%.1f\"/>\n",
                        frame.left, frame.Y(0), points, frame.left + frame.width, frame.Y(0));
  absl::StrAppendFormat(&svg, "<polyline class=\"line\" points=\"%s\"/>\n", points);
}

}  // namespace

std::string LoadTestToSvg(const LoadTest& test) {
  const Summary& summary = test.summary;
  const std::string title = EscapeXml(absl::StrCat(test.model, ": ", test.load, ", ", test.lengths,
                                                   test.interrupted ? ", interrupted" : ""));
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
      "height=\"%.0f\" role=\"img\">\n<title>%s</title>\n%s"
      "<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n"
      "<text class=\"title\" x=\"%.0f\" y=\"34\">%s</text>\n"
      "<text class=\"soft\" x=\"%.0f\" y=\"58\">%.4g tokens/s, %.4g requests/s, %d of %d requests "
      "succeeded in %.4g s</text>\n",
      kWidth, kHeight, kWidth, kHeight, title, kStyle, kMargin, title, kMargin,
      summary.tokens_per_s, summary.requests_per_s, summary.succeeded, summary.requests,
      summary.seconds);
  DrawDistribution(0, "time to first token", summary.ttft, test.limits.ttft, svg);
  DrawDistribution(1, "time per output token", summary.tpot, test.limits.tpot, svg);
  DrawDistribution(2, "between tokens", summary.inter_token, absl::InfiniteDuration(), svg);
  DrawThroughput(test, svg);
  svg += "</svg>\n";
  return svg;
}

}  // namespace skein::client

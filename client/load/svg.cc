// The picture of a load test.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/picture.h"
#include "base/plot.h"
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

// The share of values up to x, in milliseconds, with the percentiles as dots.
void DrawDistribution(int column, const char* name, const Distribution& distribution,
                      absl::Duration limit, std::string& svg) {
  const double cut_ms = distribution.percentile(99) * 1.1e3;
  const PlotFrame frame = {kMargin + column * (kPanelWidth + kGap),
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
  DrawAxes(frame, svg, "%", 100);
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
  const PlotFrame frame = {kMargin,         kTimelineTop, kWidth - 2 * kMargin,
                           kTimelineHeight, seconds,      largest > 0 ? largest : 1.0};
  absl::StrAppendFormat(&svg,
                        "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">tokens/s over time, s</text>\n",
                        frame.left, frame.top - 14);
  DrawAxes(frame, svg);
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
      kWidth, kHeight, kWidth, kHeight, title, kPlotStyle, kMargin, title, kMargin,
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

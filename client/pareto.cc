#include "client/pareto.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/picture.h"
#include "base/plot.h"
#include "base/status_macros.h"

namespace skein::client {
namespace {

// In pixels.
constexpr double kWidth = 960;
constexpr double kHeight = 600;
constexpr PlotFrame kFrame = {80, 96, kWidth - 80 - 40, kHeight - 96 - 72, 1, 1};

std::string About(const OperatingPoint& point) {
  return absl::StrFormat("%s, %d at once: %.4g tokens/s a stream, %.4g a device", point.layout,
                         point.concurrency, point.tokens_per_s_stream, point.tokens_per_s_device);
}

void DrawPoint(const PlotFrame& frame, const OperatingPoint& point, const char* kind, double radius,
               std::string& svg) {
  absl::StrAppendFormat(
      &svg, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"><title>%s</title></circle>\n",
      kind, frame.X(point.tokens_per_s_stream), frame.Y(point.tokens_per_s_device), radius,
      EscapeXml(About(point)));
}

}  // namespace

absl::StatusOr<std::vector<OperatingPoint>> OperatingPoints(const topology::Topology& topology,
                                                            const model::ModelConfig& model,
                                                            const plan::SearchTask& task) {
  const int64_t most = std::max<int64_t>(64, 4 * task.workload.concurrency);
  std::vector<OperatingPoint> points;
  for (int64_t concurrency = 1; concurrency <= most; concurrency *= 2) {
    plan::SearchTask at = task;
    at.workload.concurrency = concurrency;
    SKEIN_ASSIGN_OR_RETURN(const plan::SearchResult result,
                           plan::SearchLayouts(topology, model, at));
    for (const plan::Choice& choice : result.choices) {
      if (!choice.within_limits) continue;
      points.push_back({choice.layout.ToString(), concurrency,
                        1 / absl::ToDoubleSeconds(choice.cost.tpot),
                        choice.output_tokens_per_s / choice.devices});
    }
  }
  return points;
}

std::vector<OperatingPoint> ParetoFront(std::vector<OperatingPoint> points) {
  std::stable_sort(points.begin(), points.end(),
                   [](const OperatingPoint& a, const OperatingPoint& b) {
                     if (a.tokens_per_s_stream != b.tokens_per_s_stream) {
                       return a.tokens_per_s_stream > b.tokens_per_s_stream;
                     }
                     return a.tokens_per_s_device > b.tokens_per_s_device;
                   });
  std::vector<OperatingPoint> front;
  for (OperatingPoint& point : points) {
    if (!front.empty() && point.tokens_per_s_device <= front.back().tokens_per_s_device) continue;
    front.push_back(std::move(point));
  }
  return front;
}

std::string ParetoSvg(const std::vector<OperatingPoint>& points, std::string_view title) {
  PlotFrame frame = kFrame;
  for (const OperatingPoint& point : points) {
    frame.largest_x = std::max(frame.largest_x, 1.05 * point.tokens_per_s_stream);
    frame.largest_y = std::max(frame.largest_y, 1.05 * point.tokens_per_s_device);
  }
  const std::string name = EscapeXml(title);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
      "height=\"%.0f\" role=\"img\">\n<title>%s</title>\n%s"
      "<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n"
      "<text class=\"title\" x=\"%.0f\" y=\"34\">%s</text>\n"
      "<text class=\"soft\" x=\"%.0f\" y=\"58\">%d layouts and loads, predicted; the line joins "
      "those that "
      "no other one beats in both rates</text>\n"
      "<text class=\"name\" x=\"%.0f\" y=\"%.0f\">tokens/s a device</text>\n"
      "<text class=\"name left\" x=\"%.0f\" y=\"%.0f\">tokens/s a stream</text>\n",
      kWidth, kHeight, kWidth, kHeight, name, kPlotStyle, frame.left, name, frame.left,
      points.size(), frame.left, frame.top - 14, frame.left + frame.width, kHeight - 22);
  DrawAxes(frame, svg);
  for (const OperatingPoint& point : points) DrawPoint(frame, point, "area", 3, svg);
  const std::vector<OperatingPoint> front = ParetoFront(points);
  svg += "<polyline class=\"line\" points=\"";
  for (const OperatingPoint& point : front) {
    absl::StrAppendFormat(&svg, "%.1f,%.1f ", frame.X(point.tokens_per_s_stream),
                          frame.Y(point.tokens_per_s_device));
  }
  svg += "\"/>\n";
  for (size_t i = 0; i < front.size(); ++i) {
    DrawPoint(frame, front[i], "dot", 4, svg);
    if (i > 0 && front[i].layout == front[i - 1].layout) continue;
    // Towards the middle, where there is room.
    const double x = frame.X(front[i].tokens_per_s_stream);
    const bool right = x > frame.left + frame.width / 2;
    absl::StrAppendFormat(&svg, "<text%s x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                          right ? " class=\"left\"" : "", right ? x : x + 10,
                          frame.Y(front[i].tokens_per_s_device) - 12, EscapeXml(front[i].layout));
  }
  svg += "</svg>\n";
  return svg;
}

}  // namespace skein::client

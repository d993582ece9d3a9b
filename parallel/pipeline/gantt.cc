#include "parallel/pipeline/gantt.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/picture.h"
#include "base/plot.h"

namespace skein::schedule {
namespace {

// All in pixels.
constexpr double kWidth = 1200;
constexpr double kLeft = 72;  // the stages' names
constexpr double kRight = 24;
constexpr double kTop = 76;  // title and key
constexpr double kRow = 36;
constexpr double kGap = 6;
constexpr double kAxis = 48;  // below the rows
constexpr double kPlot = kWidth - kLeft - kRight;
constexpr double kDigit = 8;    // the width of one, at 12 px
constexpr double kTicks = 100;  // apart, about

constexpr int64_t kMostKeys = 8;  // SvgColour repeats after so many

constexpr const char* kStyle = R"(<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.paper { fill: #ffffff }
.idle { fill: #e8ebef }
.grid { stroke: #c9d0d8; stroke-width: 1 }
.box { stroke: #ffffff; stroke-width: 0.75 }
.box.sample { stroke: none; fill-opacity: 0.65 }
.number { fill: #ffffff; text-anchor: middle; pointer-events: none }
.tick { text-anchor: middle }
.name { text-anchor: end }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.paper { fill: #0d1117 }
.idle { fill: #21262d }
.grid { stroke: #3d444d }
.box { stroke: #0d1117 }
.number { fill: #ffffff }
}
</style>
)";

double Milliseconds(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

double RowTop(int32_t stage) { return kTop + stage * (kRow + kGap); }

class Picture {
 public:
  Picture(const Timeline& timeline, std::string_view title) : timeline_(timeline) {
    if (!title.empty()) title_ = absl::StrCat(EscapeXml(title), ": ");
    absl::StrAppendFormat(&title_, "%.1f%% bubble", 100 * BubbleFraction(timeline));
    for (const Interval& interval : timeline.intervals) {
      span_ms_ = std::max(span_ms_, Milliseconds(interval.end));
      steps_.insert(interval.what.step);
    }
    if (span_ms_ <= 0) span_ms_ = 1;
  }

  std::string Draw() && {
    const double bottom = RowTop(timeline_.stages);
    absl::StrAppendFormat(
        &svg_,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
        "height=\"%.0f\" role=\"img\">\n<title>%s</title>\n%s"
        "<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n"
        "<text class=\"title\" x=\"%.0f\" y=\"30\">%s</text>\n",
        kWidth, bottom + kAxis, kWidth, bottom + kAxis, title_, kStyle, kLeft, title_);
    DrawKey();
    DrawRows();
    DrawAxis(bottom);
    for (const Interval& interval : timeline_.intervals) DrawBox(interval);
    svg_ += "</svg>\n";
    return std::move(svg_);
  }

 private:
  double X(double ms) const { return kLeft + ms / span_ms_ * kPlot; }

  // The steps' colours; those of a longer timeline repeat, and its tooltips tell the step.
  void DrawKey() {
    double x = kLeft;
    for (const int64_t step : steps_) {
      if (x > kLeft + (kMostKeys - 1) * kTicks) break;
      absl::StrAppendFormat(&svg_,
                            "<rect class=\"key\" x=\"%.0f\" y=\"46\" width=\"12\" height=\"12\" "
                            "fill=\"%s\"/><text x=\"%.0f\" y=\"56\">step %d</text>\n",
                            x, SvgColour(step), x + 18, step);
      x += kTicks;
    }
  }

  void DrawRows() {
    for (int32_t stage = 0; stage < timeline_.stages; ++stage) {
      const double top = RowTop(stage);
      absl::StrAppendFormat(&svg_,
                            "<text class=\"name\" x=\"%.0f\" y=\"%.0f\">stage %d</text>"
                            "<rect class=\"idle\" x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" "
                            "height=\"%.0f\"/>\n",
                            kLeft - 10, top + kRow / 2 + 4, stage, kLeft, top, kPlot, kRow);
    }
  }

  void DrawAxis(double bottom) {
    const double apart = TickStep(span_ms_, kPlot / kTicks);
    const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(apart) + 1e-9)));
    for (int64_t i = 0; i * apart <= span_ms_ * (1 + 1e-9); ++i) {
      const double x = X(i * apart);
      absl::StrAppendFormat(&svg_,
                            "<line class=\"grid\" x1=\"%.2f\" y1=\"%.0f\" x2=\"%.2f\" "
                            "y2=\"%.0f\"/><text class=\"tick\" x=\"%.2f\" y=\"%.0f\">%.*f</text>\n",
                            x, kTop - kGap, x, bottom, x, bottom + 16, decimals, i * apart);
    }
    absl::StrAppendFormat(&svg_, "<text class=\"tick\" x=\"%.0f\" y=\"%.0f\">ms</text>\n",
                          kLeft + kPlot / 2, bottom + 36);
  }

  void DrawBox(const Interval& interval) {
    const double begin = Milliseconds(interval.begin), end = Milliseconds(interval.end);
    const double x = X(begin), width = X(end) - x, top = RowTop(interval.stage);
    const bool sample = interval.operation == Operation::kSample;
    absl::StrAppendFormat(
        &svg_,
        "<rect class=\"box%s\" x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%.0f\" fill=\"%s\">"
        "<title>stage %d, step %d, micro-batch %d%s: %.3f to %.3f ms</title></rect>\n",
        sample ? " sample" : "", x, top, width, kRow, SvgColour(interval.what.step), interval.stage,
        interval.what.step, interval.what.micro_batch, sample ? ", sampling" : "", begin, end);
    const std::string number = absl::StrCat(interval.what.micro_batch);
    if (sample || width < kDigit * (number.size() + 0.5)) return;
    absl::StrAppendFormat(&svg_, "<text class=\"number\" x=\"%.2f\" y=\"%.0f\">%s</text>\n",
                          x + width / 2, top + kRow / 2 + 4, number);
  }

  const Timeline& timeline_;
  std::string title_;  // escaped
  double span_ms_ = 0;
  std::set<int64_t> steps_;
  std::string svg_;
};

}  // namespace

std::string GanttSvg(const Timeline& timeline, std::string_view title) {
  return Picture(timeline, title).Draw();
}

}  // namespace skein::schedule

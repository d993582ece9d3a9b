#include "client/scale/scaling.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bench/report.h"
#include "base/picture.h"
#include "base/plot.h"
#include "base/units.h"
#include "nlohmann/json.hpp"

namespace skein::client {
namespace {

using Json = nlohmann::ordered_json;

// Runs of one number of ranks and one batch, in the order of `runs`.
std::vector<std::vector<const ScalingRun*>> ByLoad(const std::vector<ScalingRun>& runs) {
  std::map<std::pair<int32_t, int32_t>, std::vector<const ScalingRun*>> loads;
  for (const ScalingRun& run : runs) loads[{run.layout.ranks(), run.batch}].push_back(&run);
  std::vector<std::vector<const ScalingRun*>> all;
  for (auto& [load, of] : loads) all.push_back(std::move(of));
  return all;
}

// "2 ranks, batch 8: tp=2,pp=1,dp=1 is chosen, and takes 3.1% longer than tp=1,pp=2,dp=1"; empty
// where nothing else was measured.
std::string FormatChoice(const std::vector<const ScalingRun*>& load) {
  const ScalingRun* chosen = nullptr;
  const ScalingRun* fastest = nullptr;
  int measured = 0;
  for (const ScalingRun* run : load) {
    if (!run->step_s.has_value()) continue;
    ++measured;
    if (run->chosen) chosen = run;
    if (fastest == nullptr || *run->step_s < *fastest->step_s) fastest = run;
  }
  if (measured < 2 || chosen == nullptr) return "";
  std::string text = absl::StrFormat("%d ranks, batch %d: %s is chosen, ", chosen->layout.ranks(),
                                     chosen->batch, chosen->layout.ToString());
  if (chosen == fastest) return absl::StrCat(text, "and is the fastest\n");
  return absl::StrCat(text, absl::StrFormat("and takes %.1f%% longer than %s\n",
                                            100 * (*chosen->step_s / *fastest->step_s - 1),
                                            fastest->layout.ToString()));
}

double ErrorOf(const std::vector<ScalingRound>& rounds) {
  std::vector<double> errors;
  for (const ScalingRound& round : rounds) {
    errors.push_back(round.predicted_s / round.measured_s - 1);
  }
  return Median(std::move(errors));
}

Json RoundsToJson(const std::vector<ScalingRound>& rounds) {
  Json json = Json::array();
  for (const ScalingRound& round : rounds) {
    json.push_back(
        {{"predicted_ms", round.predicted_s * 1e3}, {"measured_ms", round.measured_s * 1e3}});
  }
  return json;
}

// "3.1% at the median, 8.0% at most"
std::string FormatErrors(const std::vector<double>& errors) {
  return absl::StrFormat("%.1f%% at the median, %.1f%% at most", 100 * Median(errors),
                         100 * *std::max_element(errors.begin(), errors.end()));
}

// A line for each prompt, behind an empty one; empty where there are none.
std::string FormatPrompts(const ScalingExperiment& experiment) {
  std::string text;
  if (experiment.prompts.empty()) return text;
  absl::StrAppendFormat(&text, "\n%-6s %-18s %6s %12s %12s %7s\n", "ranks", "layout", "prompt",
                        "predicted", "measured", "error");
  for (const PromptRun& prompt : experiment.prompts) {
    absl::StrAppendFormat(&text, "%-6d %-18s %6d %12s", prompt.layout.ranks(),
                          prompt.layout.ToString(), experiment.prompt_tokens,
                          FormatSeconds(prompt.predicted_s));
    if (prompt.measured_s.has_value()) {
      absl::StrAppendFormat(&text, " %12s %+6.1f%%", FormatSeconds(*prompt.measured_s),
                            100 * prompt.error());
    }
    text += "\n";
  }
  return text;
}

// In pixels.
constexpr double kWidth = 960;
constexpr double kPlotHeight = 320;
constexpr double kTop = 96;
constexpr double kRow = 22;
constexpr double kNames = 260;  // of runs

std::string LoadName(const ScalingExperiment& experiment, const ScalingRun& run) {
  return absl::StrFormat("batch %d%s", experiment.LoadOf(run), experiment.weak ? " a rank" : "");
}

void DrawSpeedups(const ScalingExperiment& experiment, std::string& svg) {
  PlotFrame frame = {80, kTop, kWidth - 80 - 140, kPlotHeight, 1, 1};
  std::map<std::string, std::vector<std::pair<const ScalingRun*, double>>> curves;
  for (const ScalingRun& run : experiment.runs) {
    frame.largest_x = std::max<double>(frame.largest_x, run.layout.ranks());
    const std::optional<Speedup> speedup = experiment.SpeedupOf(run);
    if (!run.chosen || !speedup.has_value()) continue;
    frame.largest_y = std::max(frame.largest_y, 1.05 * speedup->factor);
    curves[LoadName(experiment, run)].emplace_back(&run, speedup->factor);
  }
  absl::StrAppendFormat(&svg,
                        "<text class=\"name\" x=\"%.0f\" y=\"%.0f\">speed-up of tokens/s</text>\n"
                        "<text class=\"name left\" x=\"%.0f\" y=\"%.0f\">ranks</text>\n",
                        frame.left, frame.top - 14, frame.left + frame.width,
                        frame.top + frame.height + 40);
  DrawAxes(frame, svg);
  int64_t colour = 0;
  for (const auto& [name, points] : curves) {
    const char* const stroke = SvgColour(colour++);
    std::string line;
    for (const auto& [run, factor] : points) {
      absl::StrAppendFormat(&line, "%.1f,%.1f ", frame.X(run->layout.ranks()), frame.Y(factor));
      absl::StrAppendFormat(&svg,
                            "<circle fill=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>%s, %s: "
                            "%.3g</title></circle>\n",
                            stroke, frame.X(run->layout.ranks()), frame.Y(factor),
                            run->layout.ToString(), name, factor);
    }
    absl::StrAppendFormat(
        &svg,
        "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"%s\"/>\n"
        "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
        stroke, line, frame.X(points.back().first->layout.ranks()) + 10,
        frame.Y(points.back().second) + 4, name);
  }
}

// A bar a run: what was measured; a mark: what was predicted.
void DrawTimes(const ScalingExperiment& experiment, double top, std::string& svg) {
  double longest = 1e-9;
  for (const ScalingRun& run : experiment.runs) {
    longest = std::max({longest, run.predicted_s, run.step_s.value_or(0)});
  }
  const double left = kNames + 40;
  const double scale = (kWidth - left - 160) / longest;
  absl::StrAppendFormat(&svg,
                        "<text class=\"name\" x=\"40\" y=\"%.0f\">a step: bars are measured, marks "
                        "predicted</text>\n",
                        top - 12);
  double y = top;
  for (const ScalingRun& run : experiment.runs) {
    absl::StrAppendFormat(&svg, "<text class=\"left\" x=\"%.0f\" y=\"%.0f\">%s, batch %d</text>\n",
                          left - 10, y + 15, run.layout.ToString(), run.batch);
    double end = left + scale * run.predicted_s;
    if (run.step_s.has_value()) {
      absl::StrAppendFormat(
          &svg, "<rect class=\"area\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\"/>\n",
          left, y + 3, scale * *run.step_s, kRow - 6);
      end = std::max(end, left + scale * *run.step_s);
    }
    absl::StrAppendFormat(
        &svg, "<rect class=\"dot\" x=\"%.1f\" y=\"%.1f\" width=\"3\" height=\"%.0f\"/>\n",
        left + scale * run.predicted_s - 1.5, y + 1, kRow - 2);
    absl::StrAppendFormat(
        &svg, "<text class=\"soft\" x=\"%.1f\" y=\"%.0f\">%s%s</text>\n", end + 8, y + 15,
        FormatSeconds(run.step_s.value_or(run.predicted_s)),
        run.step_s.has_value() ? absl::StrFormat(", %+.1f%%", 100 * run.error()) : " predicted");
    y += kRow;
  }
}

}  // namespace

double ScalingRun::error() const { return ErrorOf(rounds); }
double PromptRun::error() const { return ErrorOf(rounds); }

std::optional<Speedup> ScalingExperiment::SpeedupOf(const ScalingRun& run) const {
  const ScalingRun* base = nullptr;
  for (const ScalingRun& other : runs) {
    if (!other.chosen || LoadOf(other) != LoadOf(run)) continue;
    if (base == nullptr || other.layout.ranks() < base->layout.ranks()) base = &other;
  }
  if (base == nullptr || !base->step_s.has_value() || !run.step_s.has_value()) return std::nullopt;
  const double factor = run.tokens_per_s() / base->tokens_per_s();
  return Speedup{factor, factor * base->layout.ranks() / run.layout.ranks()};
}

std::vector<double> ScalingExperiment::Errors() const {
  std::vector<double> errors;
  for (const ScalingRun& run : runs) {
    if (run.step_s.has_value()) errors.push_back(std::abs(run.error()));
  }
  return errors;
}

std::vector<double> ScalingExperiment::PromptErrors() const {
  std::vector<double> errors;
  for (const PromptRun& prompt : prompts) {
    if (prompt.measured_s.has_value()) errors.push_back(std::abs(prompt.error()));
  }
  return errors;
}

LayoutOrder ScalingExperiment::Order() const {
  constexpr double kDiffer = 1.15;
  LayoutOrder order;
  for (auto one = runs.begin(); one != runs.end(); ++one) {
    for (auto other = one + 1; other != runs.end(); ++other) {
      if (one->layout.ranks() != other->layout.ranks() || one->batch != other->batch) continue;
      if (!one->step_s.has_value() || !other->step_s.has_value()) continue;
      const auto [faster, slower] = std::minmax(*one->step_s, *other->step_s);
      if (slower <= kDiffer * faster) continue;
      ++order.pairs;
      const bool predicted = one->predicted_s < other->predicted_s;
      order.wrong += predicted == (*one->step_s < *other->step_s) ? 0 : 1;
    }
  }
  return order;
}

void MarkChosen(std::vector<ScalingRun>& runs) {
  std::map<std::pair<int32_t, int32_t>, ScalingRun*> fastest;
  for (ScalingRun& run : runs) {
    run.chosen = false;
    ScalingRun*& of_load = fastest[{run.layout.ranks(), run.batch}];
    if (of_load == nullptr || run.predicted_s < of_load->predicted_s) of_load = &run;
  }
  for (const auto& [load, run] : fastest) run->chosen = true;
}

std::string FormatScaling(const ScalingExperiment& experiment) {
  std::string text =
      absl::StrFormat("%-6s %-18s %6s %12s %12s %7s %10s %9s %10s\n", "ranks", "layout", "batch",
                      "predicted", "measured", "error", "tokens/s", "speed-up", "efficiency");
  for (const ScalingRun& run : experiment.runs) {
    absl::StrAppendFormat(&text, "%-6d %-18s %6d %12s", run.layout.ranks(), run.layout.ToString(),
                          run.batch, FormatSeconds(run.predicted_s));
    if (run.step_s.has_value()) {
      absl::StrAppendFormat(&text, " %12s %+6.1f%% %10.5g", FormatSeconds(*run.step_s),
                            100 * run.error(), run.tokens_per_s());
    }
    if (const std::optional<Speedup> speedup = experiment.SpeedupOf(run)) {
      absl::StrAppendFormat(&text, " %9.3g %9.0f%%", speedup->factor, 100 * speedup->efficiency);
    }
    text += "\n";
  }
  text += FormatPrompts(experiment);
  const std::vector<double> errors = experiment.Errors();
  if (errors.empty()) return text;
  absl::StrAppendFormat(&text,
                        "\nsteps are predicted with an error of %s; figures spread by %.0f%%\n",
                        FormatErrors(errors), 100 * experiment.spread);
  const std::vector<double> of_prompts = experiment.PromptErrors();
  if (!of_prompts.empty()) {
    absl::StrAppend(&text, "prompts with one of ", FormatErrors(of_prompts), "\n");
  }
  if (const LayoutOrder order = experiment.Order(); order.pairs > 0) {
    absl::StrAppendFormat(&text,
                          "layouts that differ by more than 15%%: %d of %s predicted the wrong way "
                          "round\n",
                          order.wrong, FormatCount(order.pairs, "pair"));
  }
  for (const auto& load : ByLoad(experiment.runs)) text += FormatChoice(load);
  return text;
}

std::string ScalingToJson(const ScalingExperiment& experiment) {
  Json json = {
      {"model", experiment.model},
      {"scaling", experiment.weak ? "weak" : "strong"},
      {"prompt_tokens", experiment.prompt_tokens},
      {"steps", experiment.steps},
      {"rounds", experiment.rounds},
      {"spread", experiment.spread},
      {"order", {{"pairs", experiment.Order().pairs}, {"wrong", experiment.Order().wrong}}}};
  Json& runs = json["runs"] = Json::array();
  for (const ScalingRun& run : experiment.runs) {
    Json& to = runs.emplace_back(Json{{"ranks", run.layout.ranks()},
                                      {"layout", run.layout.ToString()},
                                      {"batch", run.batch},
                                      {"chosen", run.chosen},
                                      {"predicted_ms", run.predicted_s * 1e3},
                                      {"measured_ms", nullptr}});
    if (!run.step_s.has_value()) continue;
    to["measured_ms"] = *run.step_s * 1e3;
    to["error"] = run.error();
    to["rounds"] = RoundsToJson(run.rounds);
    to["tokens_per_s"] = run.tokens_per_s();
    if (const std::optional<Speedup> speedup = experiment.SpeedupOf(run)) {
      to["speedup"] = speedup->factor;
      to["efficiency"] = speedup->efficiency;
    }
  }
  if (experiment.prompts.empty()) return json.dump(/*indent=*/1) + "\n";
  Json& prompts = json["prompts"] = Json::array();
  for (const PromptRun& prompt : experiment.prompts) {
    Json& to = prompts.emplace_back(Json{{"ranks", prompt.layout.ranks()},
                                         {"layout", prompt.layout.ToString()},
                                         {"predicted_ms", prompt.predicted_s * 1e3},
                                         {"measured_ms", nullptr}});
    if (!prompt.measured_s.has_value()) continue;
    to["measured_ms"] = *prompt.measured_s * 1e3;
    to["error"] = prompt.error();
    to["rounds"] = RoundsToJson(prompt.rounds);
  }
  return json.dump(/*indent=*/1) + "\n";
}

std::string ScalingSvg(const ScalingExperiment& experiment) {
  const double times = kTop + kPlotHeight + 96;
  const double height = times + kRow * static_cast<double>(experiment.runs.size()) + 32;
  const std::string name = EscapeXml(
      absl::StrFormat("%s, %s scaling", experiment.model, experiment.weak ? "weak" : "strong"));
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
      "height=\"%.0f\" role=\"img\">\n<title>%s</title>\n%s"
      "<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n"
      "<text class=\"title\" x=\"40\" y=\"34\">%s</text>\n"
      "<text class=\"soft\" x=\"40\" y=\"58\">decoding behind %d tokens; speed-ups are of the best "
      "predicted layouts</text>\n",
      kWidth, height, kWidth, height, name, kPlotStyle, name, experiment.prompt_tokens);
  DrawSpeedups(experiment, svg);
  DrawTimes(experiment, times, svg);
  svg += "</svg>\n";
  return svg;
}

}  // namespace skein::client

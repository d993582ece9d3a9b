#include "worker/probe/shape_times.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/units.h"

namespace skein::worker {
namespace {

absl::Status TimeRound(StepTimer& timer, BenchModel& model, int round, ShapeTimes& times) {
  const ShapeSteps& steps = times.steps;
  for (size_t i = 0; i < times.points.size(); ++i) {
    ShapeTimes::Point& least = times.points[i];
    if (round > 0 && least.rows > steps.most_again) continue;
    SKEIN_ASSIGN_OR_RETURN(const StepTime step,
                           i < steps.decodes.size()
                               ? timer.Decodes(model, least.rows, /*positions=*/0, steps.samples)
                               : timer.Prompt(model, least.rows));
    if (round > 0 && step.seconds >= least.seconds) continue;
    least = {least.rows, step.seconds, step.context, step.spread};
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ShapeTimes>> TimeShapes(StepTimer& timer,
                                                   absl::Span<const ShapeSteps> shapes) {
  std::vector<std::unique_ptr<BenchModel>> models;
  std::vector<ShapeTimes> all;
  int rounds = 0;
  for (int round = 0; round == 0 || round < rounds; ++round) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      const ShapeSteps& steps = shapes[i];
      if (round >= steps.rounds) continue;
      timer.Say(absl::StrCat(FormatCount(steps.shape.layers, "layer"), " of ", steps.shape.hidden,
                             " columns in ", std::string(DTypeName(steps.dtype)),
                             round > 0 ? ", again" : ""));
      if (round == 0) {
        const auto most = [](const std::vector<int32_t>& rows) {
          return rows.empty() ? 1 : rows.back();
        };
        SKEIN_ASSIGN_OR_RETURN(auto model, timer.Load(steps.shape, steps.dtype,
                                                      {.sequences = most(steps.decodes),
                                                       .rows = most(steps.prompts)}));
        ShapeTimes& times = all.emplace_back(ShapeTimes{.steps = steps, .cost = model->cost()});
        for (const int32_t rows : steps.decodes) times.points.push_back({rows});
        for (const int32_t rows : steps.prompts) times.points.push_back({rows});
        models.push_back(std::move(model));
        rounds = std::max(rounds, steps.rounds);
      }
      SKEIN_RETURN_IF_ERROR(TimeRound(timer, *models[i], round, all[i]));
      if (round + 1 == steps.rounds) models[i].reset();
    }
  }
  return all;
}

}  // namespace skein::worker

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

int32_t Most(const std::vector<int32_t>& rows) { return rows.empty() ? 1 : rows.back(); }

// The points of one shape, as they are timed.
class TimedShape {
 public:
  static absl::StatusOr<TimedShape> Load(StepTimer& timer, const ShapeSteps& steps) {
    SKEIN_ASSIGN_OR_RETURN(
        auto model, timer.Load(steps.shape, steps.dtype,
                               {.sequences = Most(steps.decodes), .rows = Most(steps.prompts)}));
    return TimedShape(steps, std::move(model));
  }

  absl::Status Time(StepTimer& timer, int round) {
    for (size_t i = 0; i < rows_.size(); ++i) {
      const bool again = rows_[i] <= steps_.most_again;
      if (round > 0 && !again) continue;
      SKEIN_ASSIGN_OR_RETURN(
          rounds_[i].emplace_back(),
          i < steps_.decodes.size()
              ? timer.Decodes(*model_, rows_[i], /*positions=*/0, again ? steps_.samples : 0)
              : timer.Prompt(*model_, rows_[i]));
    }
    if (round + 1 == steps_.rounds) model_.reset();
    return absl::OkStatus();
  }

  ShapeTimes Times(bool is_gpu) && {
    ShapeTimes times{.steps = std::move(steps_), .cost = cost_};
    for (size_t i = 0; i < rows_.size(); ++i) {
      std::vector<double> rounds;
      for (const StepTime& round : rounds_[i]) rounds.push_back(round.seconds);
      const StepTime step = RoundThatCounts(std::move(rounds_[i]), is_gpu);
      times.points.push_back(
          {rows_[i], step.seconds, step.context, step.spread, std::move(rounds)});
    }
    return times;
  }

 private:
  TimedShape(const ShapeSteps& steps, std::unique_ptr<BenchModel> model)
      : steps_(steps), model_(std::move(model)), cost_(model_->cost()), rows_(steps.decodes) {
    rows_.insert(rows_.end(), steps.prompts.begin(), steps.prompts.end());
    rounds_.resize(rows_.size());
  }

  ShapeSteps steps_;
  std::unique_ptr<BenchModel> model_;  // until its last round
  StepCost cost_;
  std::vector<int32_t> rows_;                  // of each point
  std::vector<std::vector<StepTime>> rounds_;  // of each point
};

}  // namespace

StepTime RoundThatCounts(std::vector<StepTime> rounds, bool is_gpu) {
  std::sort(rounds.begin(), rounds.end(),
            [](const StepTime& a, const StepTime& b) { return a.seconds < b.seconds; });
  return rounds[is_gpu ? 0 : (rounds.size() - 1) / 2];
}

absl::StatusOr<std::vector<ShapeTimes>> TimeShapes(StepTimer& timer,
                                                   absl::Span<const ShapeSteps> shapes) {
  std::vector<TimedShape> timed;
  int rounds = 0;
  for (const ShapeSteps& steps : shapes) rounds = std::max(rounds, steps.rounds);
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      const ShapeSteps& steps = shapes[i];
      if (round >= steps.rounds) continue;
      timer.Say(absl::StrCat(FormatCount(steps.shape.layers, "layer"), " of ", steps.shape.hidden,
                             " columns in ", std::string(DTypeName(steps.dtype)),
                             round > 0 ? ", again" : ""));
      if (round == 0) {
        SKEIN_ASSIGN_OR_RETURN(TimedShape shape, TimedShape::Load(timer, steps));
        timed.push_back(std::move(shape));
      }
      SKEIN_RETURN_IF_ERROR(timed[i].Time(timer, round));
    }
  }
  std::vector<ShapeTimes> times;
  for (TimedShape& shape : timed) times.push_back(std::move(shape).Times(timer.is_gpu()));
  return times;
}

}  // namespace skein::worker

#include "parallel/cost/step_cost.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/plan/prompt_pieces.h"

namespace skein::cost {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Of `whole`, what the i-th of `parts` has where they are even, the first ones the most.
int64_t PartOf(int64_t whole, int64_t i, int64_t parts) {
  return CeilDiv(whole * (i + 1), parts) - CeilDiv(whole * i, parts);
}

// When the last stage is done with a step.
absl::Duration EndOf(const schedule::Timeline& timeline, int64_t step) {
  absl::Duration end;
  for (const schedule::Interval& interval : timeline.intervals) {
    if (interval.what.step == step) end = std::max(end, interval.end);
  }
  return end;
}

// A step's micro-batches that decode feed on those of the step before, which has the same decodes.
std::vector<schedule::MicroBatch> Feeding(const std::vector<Batch>& batches, int64_t step) {
  std::vector<schedule::MicroBatch> feeding;
  for (int32_t i = 0; i < static_cast<int32_t>(batches.size()); ++i) {
    schedule::MicroBatch& batch = feeding.emplace_back();
    batch.draws = batches[i].decodes > 0;
    if (batch.draws && step > 0) batch.feeds_on = {{step - 1, i}};
  }
  return feeding;
}

// A batch's times, by stage; most batches of steps are alike.
class BatchTimes {
 public:
  explicit BatchTimes(const StageClock& clock) : clock_(clock) {}

  const std::vector<absl::Duration>& Of(const Batch& batch) {
    for (const auto& [known, times] : known_) {
      if (known == batch) return times;
    }
    std::vector<absl::Duration>& times = known_.emplace_back(batch, 0).second;
    for (const StageTime& time : clock_.OfAll(batch)) times.push_back(time.total());
    return times;
  }

 private:
  const StageClock& clock_;
  std::deque<std::pair<Batch, std::vector<absl::Duration>>> known_;
};

}  // namespace

// Decodes are spread evenly over their micro-batches, which prompts level, with more behind them.
std::vector<Batch> CutStep(const Replica& replica, const Batch& rows) {
  const int64_t most = replica.max_micro_batch_rows;
  const int64_t used =
      std::min(rows.decodes, std::max<int64_t>(replica.micro_batches, CeilDiv(rows.decodes, most)));
  std::vector<Batch> batches;
  for (int64_t i = 0; i < used; ++i) {
    const int64_t decodes = PartOf(rows.decodes, i, used);
    batches.push_back({.decodes = decodes, .context = rows.context, .outputs = decodes});
  }
  const int64_t level = CeilDiv(rows.rows(), replica.prompt_pieces);
  int64_t done = 0;
  for (size_t i = 0; done < rows.prompt_rows; ++i) {
    if (i == batches.size()) batches.emplace_back();
    Batch& batch = batches[i];
    const int64_t room =
        std::min(std::max(level - batch.decodes, plan::kMinPromptRows), most - batch.decodes);
    batch.prompt_rows = std::min(room, rows.prompt_rows - done);
    if (batch.prompt_rows == 0) continue;
    batch.prompt_context = rows.prompt_context;
    const double share =
        static_cast<double>(batch.prompt_rows) / static_cast<double>(rows.prompt_rows);
    batch.prompts = std::max(1.0, rows.prompts * share);  // two read of one that is cut
    // Logits are of the last rows as of the first.
    const int64_t prompt_outputs = rows.outputs - rows.decodes;
    batch.outputs += prompt_outputs * (done + batch.prompt_rows) / rows.prompt_rows -
                     prompt_outputs * done / rows.prompt_rows;
    done += batch.prompt_rows;
  }
  return batches;
}

absl::StatusOr<absl::Duration> StepTime(const topology::Topology& topology,
                                        const model::ModelConfig& model, const Replica& replica,
                                        const Batch& rows, Before before) {
  const int64_t context = rows.decodes > 0 ? rows.context : rows.prompt_context;
  const StageClock clock(topology, model, replica, context);
  const std::vector<Batch> batches = CutStep(replica, rows);
  const auto stages = static_cast<int32_t>(replica.stages.size());
  BatchTimes times(clock);
  if (stages == 1) {
    absl::Duration time;
    for (const Batch& batch : batches) time += times.Of(batch).front();
    return time;
  }

  // The last of three alike is beyond the ramp.
  std::vector<std::vector<Batch>> steps(before == Before::kAlike ? 3 : 1, batches);
  if (before == Before::kDecodes) {
    Batch decodes = rows;
    decodes.prompt_rows = 0;
    steps.insert(steps.begin(), 2, CutStep(replica, decodes));
  }
  schedule::Schedule schedule;
  int64_t most_rows = 0, most_drawn = 0;
  for (const std::vector<Batch>& step : steps) {
    const auto number = static_cast<int64_t>(schedule.size());
    schedule.push_back(schedule::MakeOrder(stages, number, Feeding(step, number)));
    for (const Batch& batch : step) {
      most_rows = std::max(most_rows, batch.rows());
      most_drawn = std::max(most_drawn, batch.decodes);
    }
  }
  schedule::Costs costs;
  costs.compute = [&](int32_t stage, schedule::MicroBatchId of) {
    return times.Of(steps[of.step][of.micro_batch])[stage];
  };
  costs.hop = clock.Hop(most_rows, Receiver::kAwake);
  costs.token_hop = clock.TokenHop(most_drawn, Receiver::kAwake);
  SKEIN_ASSIGN_OR_RETURN(const schedule::Timeline timeline, schedule::Simulate(schedule, costs));
  const auto last = static_cast<int64_t>(steps.size()) - 1;
  if (before != Before::kNothing) return EndOf(timeline, last) - EndOf(timeline, last - 1);
  // The first activations find each stage asleep.
  const absl::Duration wakes = clock.Hop(most_rows, Receiver::kAsleep) - costs.hop;
  return EndOf(timeline, last) + (stages - 1) * wakes;
}

}  // namespace skein::cost

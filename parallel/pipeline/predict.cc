#include "parallel/pipeline/predict.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::schedule {
namespace {

// The ramp of decode is over after the first step; a rotation that planning delays repeats every
// other step, and FindSteadyState takes the mean of half of these.
constexpr int32_t kSteps = 16;

absl::Status Check(absl::Span<const StageWork> stages, const Rates& rates, int64_t rows,
                   int32_t micro_batches) {
  if (stages.empty()) return absl::InvalidArgumentError("a pipeline has at least 1 stage, not 0");
  if (!(rates.bytes_per_s > 0) || !(rates.operations_per_s > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("rates must be more than 0, not ",
                                                   rates.bytes_per_s, " bytes/s and ",
                                                   rates.operations_per_s, " operations/s"));
  }
  if (rows < 1 || micro_batches < 1) {
    return absl::InvalidArgumentError(absl::StrCat("no schedule for ", micro_batches,
                                                   " micro-batches and ", rows,
                                                   " rows; there must be at least 1 of each"));
  }
  return absl::OkStatus();
}

Costs MakeCosts(const Rates& rates) {
  return {.compute = nullptr,
          .sample = rates.sample,
          .hop = rates.hop,
          .token_hop = rates.hop,
          .planning = rates.planning};
}

}  // namespace

absl::Duration ComputeTime(const StageWork& work, const Rates& rates, int64_t rows) {
  const double bytes =
      static_cast<double>(work.weight_bytes) + static_cast<double>(work.row_bytes) * rows;
  return absl::Seconds(
      std::max(bytes / rates.bytes_per_s, work.row_operations * rows / rates.operations_per_s));
}

absl::StatusOr<Timeline> PredictDecode(absl::Span<const StageWork> stages, const Rates& rates,
                                       int64_t sequences, int32_t micro_batches, int32_t steps) {
  SKEIN_RETURN_IF_ERROR(Check(stages, rates, sequences, micro_batches));
  if (micro_batches > sequences) {
    return absl::InvalidArgumentError(absl::StrCat("no ", micro_batches, " micro-batches of ",
                                                   sequences, " sequences; some would be empty"));
  }
  Costs costs = MakeCosts(rates);
  costs.compute = [&](int32_t stage, MicroBatchId what) {
    const int64_t rows =
        sequences / micro_batches + (what.micro_batch < sequences % micro_batches ? 1 : 0);
    return ComputeTime(stages[stage], rates, rows);
  };
  return Simulate(Decode(static_cast<int32_t>(stages.size()), micro_batches, steps), costs);
}

absl::StatusOr<MicroBatchChoice> ChooseMicroBatches(absl::Span<const StageWork> stages,
                                                    const Rates& rates, int64_t sequences) {
  SKEIN_RETURN_IF_ERROR(Check(stages, rates, sequences, 1));
  const auto fewest = static_cast<int64_t>(stages.size());
  const int64_t most = fewest == 1 ? 1 : std::min(sequences, fewest + 1);
  MicroBatchChoice choice;
  absl::Duration best = absl::InfiniteDuration();
  for (int64_t count = std::min(sequences, fewest); count <= most; ++count) {
    const auto micro_batches = static_cast<int32_t>(count);
    SKEIN_ASSIGN_OR_RETURN(const Timeline timeline,
                           PredictDecode(stages, rates, sequences, micro_batches, kSteps));
    choice.predictions.push_back({micro_batches, FindSteadyState(timeline)});
    if (choice.predictions.back().steady.step_period >= best) continue;
    best = choice.predictions.back().steady.step_period;
    choice.micro_batches = micro_batches;
  }
  return choice;
}

std::vector<StageWork> WorkOfPlan(const plan::Plan& plan, int64_t context,
                                  double bytes_per_weight) {
  const int64_t slots = plan.pages * plan.page_size;
  std::vector<StageWork> stages(plan.layout.pp_size);
  for (int32_t stage = 0; stage < plan.layout.pp_size; ++stage) {
    StageWork& work = stages[stage];
    for (int32_t shard = 0; shard < plan.layout.tp_size; ++shard) {
      const plan::RankPlan& rank = plan.ranks[plan.RankOf(0, stage, shard)];
      work.weight_bytes = std::max(work.weight_bytes, rank.weight_bytes);
      if (slots > 0) {
        work.row_bytes =
            std::max(work.row_bytes,
                     static_cast<int64_t>(static_cast<double>(rank.kv_bytes) / slots * context));
      }
    }
    work.row_operations = 2 * static_cast<double>(work.weight_bytes) / bytes_per_weight;
  }
  return stages;
}

}  // namespace skein::schedule

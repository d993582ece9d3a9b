#include "parallel/planner/micro_batches.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/units.h"

namespace skein::plan {
namespace {

// Looks at activations alone: where they stay on a node, so do the tokens on their way back.
bool LeavesANode(const topology::Machine& machine, const Plan& plan) {
  const Layout& layout = plan.layout;
  for (int32_t replica = 0; replica < layout.dp_size; ++replica) {
    for (int32_t stage = 1; stage < layout.pp_size; ++stage) {
      for (int32_t shard = 0; shard < layout.tp_size; ++shard) {
        if (machine.devices[plan.RankOf(replica, stage, shard)].node !=
            machine.devices[plan.RankOf(replica, stage - 1, shard)].node) {
          return true;
        }
      }
    }
  }
  return false;
}

std::string Milliseconds(absl::Duration duration) {
  return absl::StrFormat("%.3g ms", absl::ToDoubleMilliseconds(duration));
}

std::string Reason(const schedule::MicroBatchChoice& choice, const schedule::Rates& rates,
                   const Plan& plan) {
  const int32_t stages = plan.layout.pp_size;
  if (choice.micro_batches < stages) {
    return absl::StrCat("A micro-batch of decodes for each sequence: with ", choice.micro_batches,
                        " of them some of the ", stages, " stages idle.");
  }
  std::string reason = absl::StrCat(choice.micro_batches, " micro-batches of decodes, ");
  const bool more = choice.micro_batches > stages;
  absl::StrAppend(&reason, more ? "one more than stages, to hide their hops"
                                : "one for each stage, so that all stages work at the same time");
  if (choice.predictions.size() < 2) return reason + ".";
  const schedule::Prediction& taken = choice.predictions[more ? 1 : 0];
  const schedule::Prediction& left = choice.predictions[more ? 0 : 1];
  return absl::StrCat(reason, ": a step of ", FormatCount(plan.max_num_seqs, "sequence"),
                      " would take ", Milliseconds(taken.steady.step_period), ", with ",
                      left.micro_batches, " ", Milliseconds(left.steady.step_period), " (at ",
                      FormatBytesPerSecond(rates.bytes_per_s), " a rank and ",
                      Milliseconds(rates.hop), " a hop).");
}

}  // namespace

schedule::Rates RatesOf(const PipelineRates& rates, const topology::Machine& machine,
                        const Plan& plan) {
  absl::Duration hop = rates.hop;
  if (hop == absl::ZeroDuration()) {
    hop = LeavesANode(machine, plan) ? kHopBetweenHosts : kHopInHost;
  }
  return {.bytes_per_s = rates.read_bytes_per_s, .hop = hop};
}

std::vector<schedule::StageWork> DecodeWork(const Plan& plan, const model::ModelConfig& model) {
  std::vector<schedule::StageWork> stages = schedule::WorkOfPlan(
      plan, plan.context_length / 2, static_cast<double>(DTypeBytes(model.dtype, 1)));
  // The embedding is not read whole, but looked up for a few rows, unless it is the output's
  // matrix, too.
  if (plan.layout.pp_size == 1 && model.tie_word_embeddings) return stages;
  const int64_t shard_rows = (model.vocab_size + plan.layout.tp_size - 1) / plan.layout.tp_size;
  const int64_t table = shard_rows * model.hidden_size;
  stages[0].weight_bytes -= DTypeBytes(model.dtype, table);
  stages[0].row_operations -= 2 * static_cast<double>(table);
  return stages;
}

absl::StatusOr<MicroBatchCount> CountMicroBatches(const PipelineRates& rates,
                                                  const topology::Machine& machine,
                                                  const model::ModelConfig& model,
                                                  const Plan& plan) {
  const schedule::Rates weighed = RatesOf(rates, machine, plan);
  SKEIN_ASSIGN_OR_RETURN(
      const schedule::MicroBatchChoice choice,
      schedule::ChooseMicroBatches(DecodeWork(plan, model), weighed, plan.max_num_seqs));
  if (plan.layout.pp_size == 1) return MicroBatchCount{choice.micro_batches, ""};
  return MicroBatchCount{choice.micro_batches, Reason(choice, weighed, plan)};
}

}  // namespace skein::plan

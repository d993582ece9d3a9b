#include "coordinator/client/plan.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/units.h"
#include "coordinator/client/connection.h"
#include "model/config/model_config.h"
#include "model/synthetic/synthetic.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/kv_memory.h"
#include "parallel/planner/planner.h"
#include "parallel/schedule/gantt.h"
#include "parallel/schedule/predict.h"
#include "topology/host/host.h"
#include "topology/machine.h"

namespace skein::client {
namespace {

constexpr int32_t kDrawnSteps = 4;
constexpr absl::Duration kHop = absl::Microseconds(20);  // inside a host

absl::StatusOr<plan::ModelFacts> ReadModel(const std::string& model) {
  plan::ModelFacts facts = {.name = model, .path = model};
  if (model::IsSyntheticSpec(model)) {
    SKEIN_ASSIGN_OR_RETURN(const model::SyntheticModel synthetic, model::ParseSyntheticSpec(model));
    facts.config = synthetic.config;
  } else {
    SKEIN_ASSIGN_OR_RETURN(facts.config, model::LoadModelConfig(model));
  }
  return facts;
}

absl::StatusOr<plan::Constraints> MakeConstraints(const PlanFlags& flags) {
  plan::Constraints constraints;
  SKEIN_ASSIGN_OR_RETURN(constraints.layout, plan::ParseLayoutRequest(flags.layout));
  SKEIN_ASSIGN_OR_RETURN(constraints.kv_memory, plan::ParseKvMemory(flags.kv_memory));
  SKEIN_ASSIGN_OR_RETURN(constraints.kv_dtype, plan::ParseKvDType(flags.kv_dtype));
  SKEIN_ASSIGN_OR_RETURN(constraints.swap_memory_bytes, plan::ParseSwapMemory(flags.swap_memory));
  constraints.context_length = flags.context_length;
  constraints.max_sequences = flags.max_sequences;
  constraints.step_tokens = flags.step_tokens;
  return constraints;
}

// Steady decode of as many sequences as may run, in the middle of their contexts.
absl::Status DrawGantt(const PlanFlags& flags, const plan::Plan& plan,
                       const model::ModelConfig& config) {
  const auto work = schedule::WorkOfPlan(plan, plan.context_length / 2,
                                         static_cast<double>(DTypeBytes(config.dtype, 1)));
  const schedule::Rates rates = {.bytes_per_s = flags.read_bandwidth_gb_s * 1e9, .hop = kHop};
  const int32_t micro_batches = std::min(plan.micro_batches, plan.max_sequences);
  SKEIN_ASSIGN_OR_RETURN(
      const schedule::Timeline timeline,
      schedule::PredictDecode(work, rates, plan.max_sequences, micro_batches, kDrawnSteps));
  const std::string title =
      absl::StrCat(plan.model_name, ", ", plan.layout.ToString(), ": decode of ",
                   FormatCount(plan.max_sequences, "sequence"), " in ", micro_batches,
                   micro_batches == 1 ? " micro-batch at " : " micro-batches at ",
                   FormatBytesPerSecond(rates.bytes_per_s), " a rank");
  std::ofstream file(flags.gantt_file, std::ios::binary);
  file << schedule::GanttSvg(timeline, title);
  file.close();
  if (!file)
    return absl::UnavailableError(absl::StrCat("--gantt: cannot write ", flags.gantt_file));
  return absl::OkStatus();
}

absl::Status Run(const PlanFlags& flags) {
  SKEIN_ASSIGN_OR_RETURN(const plan::ModelFacts model, ReadModel(flags.model));
  SKEIN_ASSIGN_OR_RETURN(const plan::Constraints constraints, MakeConstraints(flags));
  SKEIN_ASSIGN_OR_RETURN(const topology::Node node, topology::DescribeHost());
  const topology::Machine machine = topology::MachineFromRanks(
      std::vector<topology::Node>(static_cast<size_t>(flags.ranks), node));
  SKEIN_ASSIGN_OR_RETURN(const plan::Planning planning, plan::PlanJob(machine, model, constraints));
  const plan::Plan& best = planning.plans.front();
  absl::PrintF("%s: %s, %s free\n\n%s", node.host, FormatCount(node.cores, "core"),
               FormatBytes(node.memory_bytes), plan::FormatPlan(best));
  if (!planning.rejected.empty()) absl::PrintF("\nother layouts:\n");
  for (const plan::RejectedLayout& rejected : planning.rejected) {
    absl::PrintF("  %s: %s\n", rejected.layout.ToString(), rejected.reason);
  }
  return flags.gantt_file.empty() ? absl::OkStatus() : DrawGantt(flags, best, model.config);
}

}  // namespace

void DeclarePlan(CLI::App& command, PlanFlags& flags) {
  command.add_option("--model", flags.model, "A model's folder, or synthetic:NAME")->required();
  command.add_option("--ranks", flags.ranks, "Ranks of the job, all on this host")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--layout", flags.layout,
                     "Parts that are fixed, like tp=2,pp=2; the rest is planned");
  command
      .add_option("--context-length", flags.context_length,
                  "Tokens of one sequence; 0: the model's")
      ->capture_default_str();
  command
      .add_option("--max-sequences", flags.max_sequences,
                  "That a replica runs at once; 0: the planner's choice")
      ->capture_default_str();
  command.add_option("--kv-memory", flags.kv_memory,
                     "For keys and values: a fraction (0.5) or bytes per rank (2GiB)");
  command.add_option("--kv-dtype", flags.kv_dtype, "Of keys and values: f32, bf16 or int8")
      ->capture_default_str();
  command.add_option("--swap-memory", flags.swap_memory, "Bytes per rank to swap to, like 1GiB");
  command.add_option("--step-tokens", flags.step_tokens, "Of a step; 0: the planner's choice")
      ->capture_default_str();
  command.add_option("--gantt", flags.gantt_file,
                     "Draw what the pipeline's stages do while they decode into this SVG file");
  command
      .add_option("--read-bandwidth", flags.read_bandwidth_gb_s,
                  "GB/s that a rank reads from memory (`skein bench` measures it); it scales "
                  "the picture's times and decides nothing")
      ->check(CLI::Range(1e-3, 1e6))
      ->capture_default_str();
}

int Plan(const PlanFlags& flags) {
  const absl::Status status = Run(flags);
  if (status.ok()) return kExitOk;
  absl::FPrintF(stderr, "skein: %s\n", std::string(status.message()));
  return kExitError;
}

}  // namespace skein::client

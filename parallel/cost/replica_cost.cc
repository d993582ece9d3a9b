#include "parallel/cost/replica_cost.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/status_macros.h"
#include "parallel/comm/patience.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "parallel/pipeline/shared_cores.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/plan/prompt_pieces.h"

namespace skein::cost {
namespace {

using model::ModelConfig;
using topology::Topology;

// As parallel/pipeline predicts: the ramp is over after the first step.
constexpr int32_t kSteps = 16;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// An answer is at its middle, on the average.
int64_t MeanContext(const Workload& workload) {
  return workload.prompt_tokens + workload.output_tokens / 2;
}

int64_t RowsOf(const Replica& replica) { return CeilDiv(replica.sequences, replica.micro_batches); }

// How decodes share cores where stages do that take longer than a turn, and not all of them have
// work at once; none otherwise: shares of cores say it all. As many neighbours have a core as
// worker/core_binding binds to it. Nothing tells here whether it binds any: a launcher's binding
// and a quota keep it from that.
std::optional<schedule::SharedCores> SharedCoresOf(const Replica& replica,
                                                   const StageClock& clock) {
  const Stage& first = replica.stages.front();
  const size_t stages = replica.stages.size();
  const auto neighbours = static_cast<size_t>(first.share.sets);
  // Where they are no whole number of parts, cores are of several replicas, or of no one stage.
  const bool evenly = static_cast<double>(neighbours) == first.share.sets && neighbours > 1 &&
                      stages % neighbours == 0;
  if (!evenly || static_cast<size_t>(replica.micro_batches) >= stages) return std::nullopt;
  // Who waits for a stage that takes so long is asleep.
  schedule::SharedCores cores = {.hop = clock.Hop(RowsOf(replica), Receiver::kAsleep),
                                 .token_hop = clock.TokenHop(RowsOf(replica), Receiver::kAsleep)};
  for (size_t i = 0; i < stages; ++i) {
    const Stage& stage = replica.stages[i];
    const bool alike = stage.sites.size() == 1 && stage.sites.front() == first.sites.front() &&
                       stage.share.sets == first.share.sets;
    const absl::Duration alone = clock.AloneOnCore(i, RowsOf(replica)).total();
    if (!alike || alone < kTurn) return std::nullopt;
    cores.compute.push_back(alone);
    cores.core.push_back(static_cast<int32_t>(i / neighbours));
  }
  return cores;
}

// Of cores: a stage that shares one works for as long as both take.
double IdleShare(const schedule::SharedCores& cores, int32_t micro_batches, absl::Duration step) {
  absl::Duration busy;
  for (const absl::Duration& compute : cores.compute) busy += micro_batches * compute;
  return 1 - absl::FDivDuration(busy, (cores.core.back() + 1) * step);
}

absl::StatusOr<schedule::Timeline> Simulate(const Replica& replica, const StageClock& clock,
                                            const std::vector<StageTime>& times, int32_t steps,
                                            Receiver receiver) {
  schedule::Costs costs;
  costs.compute = [&](int32_t stage, schedule::MicroBatchId) { return times[stage].total(); };
  costs.hop = clock.Hop(RowsOf(replica), receiver);
  costs.token_hop = clock.TokenHop(RowsOf(replica), receiver);
  const auto stages = static_cast<int32_t>(replica.stages.size());
  return schedule::Simulate(schedule::Decode(stages, replica.micro_batches, steps), costs);
}

// Who waits for longer than a transport spins has fallen asleep. With a micro-batch for each stage
// those that others wait for are awake; stages that have less to do may sleep, which costs the
// others nothing.
absl::StatusOr<Receiver> ReceiverOfDecodes(const Replica& replica, const StageClock& clock,
                                           const std::vector<StageTime>& times) {
  const auto stages = static_cast<int32_t>(replica.stages.size());
  if (replica.micro_batches >= stages) return Receiver::kAwake;
  SKEIN_ASSIGN_OR_RETURN(const schedule::Timeline timeline,
                         Simulate(replica, clock, times, kSteps, Receiver::kAwake));
  absl::Duration busy;
  for (const StageTime& time : times) busy += replica.micro_batches * time.total();
  const absl::Duration waits = schedule::FindSteadyState(timeline).step_period - busy / stages;
  return waits > comm::kSpin ? Receiver::kAsleep : Receiver::kAwake;
}

absl::StatusOr<schedule::Timeline> SimulateAsRanksWait(const Replica& replica,
                                                       const StageClock& clock,
                                                       const std::vector<StageTime>& times,
                                                       int32_t steps) {
  if (const auto shared = SharedCoresOf(replica, clock); shared.has_value()) {
    return schedule::SimulateDecodes(*shared, replica.micro_batches, steps);
  }
  SKEIN_ASSIGN_OR_RETURN(const Receiver receiver, ReceiverOfDecodes(replica, clock, times));
  return Simulate(replica, clock, times, steps, receiver);
}

// Steady decode.
absl::Status PredictSteps(const Replica& replica, const StageClock& clock, ReplicaCost& cost) {
  const auto stages = static_cast<int32_t>(replica.stages.size());
  if (stages == 1) {
    const StageTime time = clock.OfDecodes(replica.sequences).front();
    cost.step = time.total();
    cost.exchange_share = absl::FDivDuration(time.exchange, cost.step);
    return absl::OkStatus();
  }
  const std::vector<StageTime> times = clock.OfDecodes(RowsOf(replica));
  SKEIN_ASSIGN_OR_RETURN(const schedule::Timeline timeline,
                         SimulateAsRanksWait(replica, clock, times, kSteps));
  const schedule::SteadyState steady = schedule::FindSteadyState(timeline);
  cost.step = steady.step_period;
  const std::optional<schedule::SharedCores> shared = SharedCoresOf(replica, clock);
  cost.bubble = shared.has_value() ? IdleShare(*shared, replica.micro_batches, steady.step_period)
                                   : steady.bubble;
  absl::Duration exchange;
  for (const StageTime& time : times) exchange = std::max(exchange, time.exchange);
  cost.exchange_share = absl::FDivDuration(replica.micro_batches * exchange, cost.step);
  return absl::OkStatus();
}

// As plans bound them (plan::Plan::max_num_batched_tokens), unless flags do.
int64_t StepRows(const Replica& replica) {
  return static_cast<int64_t>(replica.stages.size()) * replica.max_micro_batch_rows;
}

// The rows of a prompt that are computed together, where nothing is beside them: as
// worker/scheduler/micro_batches.h cuts a step.
int64_t PieceRows(const Replica& replica, int64_t prompt_tokens) {
  const int64_t level = CeilDiv(std::min(prompt_tokens, StepRows(replica)), replica.prompt_pieces);
  return std::min(std::max(level, plan::kMinPromptRows), replica.max_micro_batch_rows);
}

// A prompt: until its first token is drawn where nobody delays it, and as the slowest stage is busy
// with it.
struct PromptTime {
  absl::Duration first_token;
  absl::Duration busy;
};

// Alone it is cut into pieces, on which stages work at the same time. Those before the last have
// their mean context, which is what they take on the average but for layers with windows.
absl::Duration TimeFirstToken(const Replica& replica, const StageClock& clock,
                              const Workload& workload) {
  if (workload.prompt_tokens == 0) return absl::ZeroDuration();
  const int64_t piece = PieceRows(replica, workload.prompt_tokens);
  const int64_t before = (workload.prompt_tokens - 1) / piece;  // pieces
  struct Piece {
    absl::Duration asleep;
    absl::Duration awake;
    std::vector<absl::Duration> takes;  // by stage
  };
  const auto of = [&](const Batch& rows) {
    Piece timed = {clock.Hop(rows.prompt_rows, Receiver::kAsleep),
                   clock.Hop(rows.prompt_rows, Receiver::kAwake),
                   /*takes=*/{}};
    for (size_t i = 0; i < replica.stages.size(); ++i) {
      timed.takes.push_back(clock.Of(i, rows).total());
    }
    return timed;
  };
  const int64_t rows = workload.prompt_tokens - before * piece;
  const Piece last = of({.prompt_rows = rows,
                         .prompts = 1,
                         .prompt_context = workload.prompt_tokens - (rows + 1) / 2,
                         .outputs = 1});
  const Piece others =
      before == 0 ? last
                  : of({.prompt_rows = piece, .prompts = 1, .prompt_context = before * piece / 2});
  std::vector<absl::Duration> stage_free(replica.stages.size());
  for (int64_t number = 0; number <= before; ++number) {
    const Piece& now = number == before ? last : others;
    absl::Duration arrived;
    for (size_t i = 0; i < replica.stages.size(); ++i) {
      stage_free[i] = std::max(stage_free[i], arrived) + now.takes[i];
      if (i + 1 == replica.stages.size()) break;
      // Nothing was before the first piece.
      const bool sleeps = number == 0 || stage_free[i] - stage_free[i + 1] > comm::kSpin;
      arrived = stage_free[i] + (sleeps ? now.asleep : now.awake);
    }
  }
  return stage_free.back();
}

// Beside others its rows are in steps that are full.
PromptTime TimePrompt(const Replica& replica, const StageClock& clock, const Workload& workload) {
  PromptTime time = {.first_token = TimeFirstToken(replica, clock, workload)};
  const int64_t piece = PieceRows(replica, StepRows(replica));
  std::vector<absl::Duration> busy(replica.stages.size());
  for (int64_t before = 0; before < workload.prompt_tokens;) {
    const int64_t rows = std::min(piece, workload.prompt_tokens - before);
    const bool last = before + rows == workload.prompt_tokens;
    const std::vector<StageTime> times = clock.OfAll({.prompt_rows = rows,
                                                      .prompts = 1,
                                                      .prompt_context = before + rows / 2,
                                                      .outputs = last ? 1 : 0});
    for (size_t i = 0; i < busy.size(); ++i) busy[i] += times[i].total();
    before += rows;
  }
  time.busy = *std::max_element(busy.begin(), busy.end());
  return time;
}

// Half of the step under way, and the one that is ordered behind it (worker/engine/loops.h).
constexpr double kStepsBefore = 1.5;

// What a prompt waits for, on the average. `round`: while each sequence begins an answer and ends
// it.
absl::Duration WaitOfPrompt(const Replica& replica, const Workload& workload, absl::Duration step,
                            absl::Duration prompt, absl::Duration round) {
  // For a place: by Little's law, where some always wait.
  const absl::Duration place = round * replica.waiting / replica.sequences;
  const int32_t others = replica.sequences - 1;
  if (others == 0) return place;
  // For other prompts: of a queue whose customers take equally long (M/D/1), but for no more than
  // there can be. And for decodes: those of what was ordered before, and of its own steps.
  const double busy = absl::FDivDuration(prompt * others, round);
  const absl::Duration prompts =
      std::min(busy / (2 * (1 - busy)), static_cast<double>(others)) * prompt;
  const int64_t steps = CeilDiv(workload.prompt_tokens, StepRows(replica));
  return place + prompts + step * (kStepsBefore + static_cast<double>(steps));
}

}  // namespace

absl::StatusOr<schedule::Timeline> SimulateDecodes(const Topology& topology,
                                                   const ModelConfig& model, const Replica& replica,
                                                   const Workload& workload, int32_t steps) {
  const StageClock clock(topology, model, replica, MeanContext(workload));
  return SimulateAsRanksWait(replica, clock, clock.OfDecodes(RowsOf(replica)), steps);
}

absl::StatusOr<absl::Duration> DecodeStepTime(const Topology& topology, const ModelConfig& model,
                                              const Replica& replica, int64_t context) {
  const StageClock clock(topology, model, replica, context);
  ReplicaCost cost;
  SKEIN_RETURN_IF_ERROR(PredictSteps(replica, clock, cost));
  return cost.step;
}

absl::StatusOr<ReplicaCost> PredictReplica(const Topology& topology, const ModelConfig& model,
                                           const Replica& replica, const Workload& workload) {
  const StageClock clock(topology, model, replica, MeanContext(workload));
  ReplicaCost cost;
  SKEIN_RETURN_IF_ERROR(PredictSteps(replica, clock, cost));
  const PromptTime prompt = TimePrompt(replica, clock, workload);
  const auto outputs = static_cast<double>(workload.output_tokens);
  const double sequences = replica.sequences;
  cost.prompt = prompt.first_token;
  // While a sequence draws its tokens, each other one begins an answer, once.
  cost.tpot = cost.step + prompt.busy * (sequences - 1) / outputs;
  const absl::Duration round = prompt.busy * sequences + cost.step * outputs;
  cost.output_tokens_per_s = sequences * outputs / absl::ToDoubleSeconds(round);
  cost.ttft = cost.prompt + WaitOfPrompt(replica, workload, cost.step, prompt.busy, round);
  return cost;
}

}  // namespace skein::cost

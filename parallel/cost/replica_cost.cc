#include "parallel/cost/replica_cost.h"

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "parallel/comm/patience.h"
#include "parallel/cost/exchange_cost.h"
#include "parallel/cost/layer_work.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "parallel/pipeline/simulate.h"

namespace skein::cost {
namespace {

using model::ElementBytes;
using model::ModelConfig;
using model::TypeShare;
using topology::Topology;

// As parallel/pipeline predicts: the ramp is over after the first step.
constexpr int32_t kSteps = 16;

// How long Linux leaves a core to who does not wait, where others want it: a tick of its usual
// kernels, at which it looks.
constexpr absl::Duration kTurn = absl::Milliseconds(4);

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int32_t ShardsOf(const Stage& stage) { return static_cast<int32_t>(stage.sites.size()); }

// A micro-batch: `rows` of it, each with `context` tokens before it, of which `reads` are read
// apart: decodes read each their own, a prompt's rows share theirs.
struct Rows {
  int64_t rows = 0;
  int64_t context = 0;
  int64_t reads = 0;
};

struct StageTime {
  absl::Duration compute;
  absl::Duration exchange;

  absl::Duration total() const { return compute + exchange; }
};

int64_t ActivationBytes(const Replica& replica, int64_t values) {
  return DTypeBytes(replica.activations, values);
}

// Keys and values of one token in one layer of a shard.
double TokenBytes(const ModelConfig& model, const Replica& replica, int32_t tp_size) {
  const int64_t heads = std::max<int64_t>(1, model.num_kv_heads / tp_size);
  return 2.0 * static_cast<double>(heads * model.head_dim) * replica.kv_bytes_per_value;
}

// What one kernel after the other reads and multiplies with. Reading overlaps with multiplying
// within a part, and not beyond it.
struct Part {
  double bytes = 0;
  double operations = 0;
  int64_t tasks = 1;  // of attention: a thread has one at a time
};

CoreShare Beside(CoreShare share) {
  share.together = true;
  return share;
}

// The seconds of decodes' attention, as a probe measured it. On cores it was measured beside
// others; alone it is as much faster as plain reads are.
double MeasuredAttention(const topology::DeviceRates& rates, CoreShare share, const Part& attention,
                         int64_t rows, int64_t working_set_bytes) {
  // Of the last round of tasks some threads may have none.
  const auto tasks = static_cast<double>(attention.tasks);
  share.of_a_core *= tasks / share.threads / std::ceil(tasks / share.threads);
  const topology::AttentionRate rate = AttentionOf(rates, working_set_bytes, rows, share);
  double read = attention.bytes / rate.bytes_per_s;
  if (!share.together) {
    read *= ReadBytesPerS(rates, working_set_bytes, Beside(share)) /
            ReadBytesPerS(rates, working_set_bytes, share);
  }
  return rate.operations_per_s > 0 ? read + attention.operations / rate.operations_per_s : read;
}

// The time of the slowest shard to read and multiply, with weights and then in attention, to begin
// so many layers, and for each row to pass as many values in each.
absl::Duration ComputeTime(const Topology& topology, const ModelConfig& model, const Stage& stage,
                           absl::Span<const TypeShare> types, const Part& products,
                           const Part& attention, bool decodes, int64_t working_set_bytes,
                           int64_t rows, int64_t layers, double values_passed) {
  absl::Duration slowest;
  for (const Site& site : stage.sites) {
    const topology::DeviceRates& rates = RatesOf(topology, site);
    const double read = ReadBytesPerS(rates, working_set_bytes, stage.share);
    const double multiplied = OperationsPerS(rates, types, working_set_bytes, rows, stage.share);
    const double attended =
        decodes && !rates.attention.empty()
            ? MeasuredAttention(rates, stage.share, attention, rows, working_set_bytes)
            : std::max(attention.bytes / read,
                       attention.operations / OperationsPerS(rates, {TypeShare{model.dtype}},
                                                             working_set_bytes, rows, stage.share));
    double multiplying = std::max(products.bytes / read, products.operations / multiplied);
    if (site.gpu < 0 && !stage.share.together) {
      // Products were measured beside others. What they take longer than in a cache, where they do,
      // is reads, which take less alone.
      const double beside = ReadBytesPerS(rates, working_set_bytes, Beside(stage.share));
      const double saved = products.bytes / beside - products.bytes / read;
      const double in_cache =
          products.operations /
          OperationsPerS(rates, types, /*working_set_bytes=*/1, rows, stage.share);
      const double least = std::max(products.bytes / read, std::min(in_cache, multiplying));
      multiplying = std::min(multiplying, std::max(multiplying - saved, least));
    }
    double begun = absl::ToDoubleSeconds(OverheadOf(rates, rows).layer);
    if (rates.passed_values_per_s > 0) {
      begun += static_cast<double>(rows) * values_passed / rates.passed_values_per_s;
    }
    const double seconds =
        multiplying + attended + static_cast<double>(layers) * begun / stage.share.of_a_core;
    slowest = std::max(slowest, absl::Seconds(seconds));
  }
  return slowest;
}

// Its rank waits for nobody, and keeps a core for whole turns.
bool IsAlone(const Replica& replica) {
  return replica.stages.size() == 1 && ShardsOf(replica.stages.front()) == 1;
}

// What passes through the caches of a rank of a stage from step to step: what it holds, and what
// those hold that share its cores with it, but for a rank that takes turns with them.
int64_t WorkingSet(const ModelConfig& model, const Replica& replica, const Stage& stage,
                   bool has_output, int64_t sequences, int64_t context) {
  const int32_t tp = ShardsOf(stage);
  const auto layers = static_cast<double>(stage.layers.size());
  const double kv = layers * TokenBytes(model, replica, tp) * static_cast<double>(sequences) *
                    SeenTokens(model, context);
  const int64_t weights = LayerWeightBytes(model, tp) * stage.layers.size() +
                          (has_output ? OutputWeightBytes(model, tp) : 0);
  const double sets = IsAlone(replica) ? 1 : stage.share.sets;
  return static_cast<int64_t>((static_cast<double>(weights) + kv) * sets);
}

StageTime LayersTime(const Topology& topology, const ModelConfig& model, const Replica& replica,
                     const Stage& stage, const Rows& batch, int64_t layers, int64_t working_set) {
  const int32_t tp = ShardsOf(stage);
  const auto rows = static_cast<double>(batch.rows);
  const auto chosen = static_cast<double>(model.experts.chosen);
  const std::vector<TypeShare> types = model.LayerTypes();
  const double weights =
      ElementBytes(types) * LayerValues(model, tp, TouchedExperts(model, batch.rows));
  const double values = LayerValues(model, tp, chosen);
  const double share = ShareOfExperts(model);
  // Rows pass through memory between products.
  const double values_passed = PassedValues(model, tp);
  const double passed =
      rows * static_cast<double>(ActivationBytes(replica, static_cast<int64_t>(values_passed)));
  const double seen = SeenTokens(model, batch.context);
  const double kv = TokenBytes(model, replica, tp) * seen * static_cast<double>(batch.reads);
  const double attention =
      4.0 * static_cast<double>(model.num_heads / tp * model.head_dim) * seen * rows;
  const auto count = static_cast<double>(layers);
  StageTime time;
  time.compute = ComputeTime(
      topology, model, stage, types, {count * (weights + passed), count * 2 * values * rows},
      {count * kv, count * attention,
       /*tasks=*/batch.rows * std::max<int64_t>(1, model.num_kv_heads / tp)},
      /*decodes=*/batch.reads == batch.rows, working_set, batch.rows, layers, values_passed);
  // Behind attention and behind the MLP, or what each chosen expert of a row adds.
  const auto sum_of = [&](int64_t rows_of_hidden) {
    const int64_t bytes = DTypeBytes(replica.sums, rows_of_hidden * model.hidden_size);
    return replica.sums_by_hosts ? HostSumTime(topology, stage.sites, bytes)
                                 : AllReduceTime(topology, stage.sites, bytes, stage.share);
  };
  const absl::Duration sum = sum_of(batch.rows);
  time.exchange = layers * (2 - share) * sum;
  if (share > 0) {
    time.exchange += layers * share * sum_of(batch.rows * model.experts.chosen);
    if (model.experts.shared_intermediate_size > 0) time.exchange += layers * share * sum;
  }
  return time;
}

StageTime LogitsTime(const Topology& topology, const ModelConfig& model, const Stage& stage,
                     int64_t rows, int64_t working_set) {
  const int32_t tp = ShardsOf(stage);
  const auto weights = static_cast<double>(OutputWeightBytes(model, tp));
  const std::vector<TypeShare> types = model.OutputTypes();
  const double values = weights / ElementBytes(types);
  StageTime time;
  time.compute = ComputeTime(topology, model, stage, types,
                             {weights, 2 * values * static_cast<double>(rows)}, {},
                             /*decodes=*/false, working_set, rows, /*layers=*/0,
                             /*values_passed=*/0);
  // Shards exchange what each row drew, not its logits.
  time.exchange = AllGatherTime(topology, stage.sites, rows * int64_t{16} * tp, stage.share);
  return time;
}

// A stage's times, for micro-batches of a workload.
class StageClock {
 public:
  StageClock(const Topology& topology, const ModelConfig& model, const Replica& replica,
             const Workload& workload)
      : topology_(topology), model_(model), replica_(replica) {
    // An answer is at its middle, on the average.
    context_ = workload.prompt_tokens + workload.output_tokens / 2;
  }

  int64_t context() const { return context_; }
  bool IsLast(size_t stage) const { return stage + 1 == replica_.stages.size(); }

  // `outputs` of the rows have logits.
  StageTime Of(size_t index, const Rows& batch, int64_t outputs) const {
    const Stage& stage = replica_.stages[index];
    const int64_t set =
        WorkingSet(model_, replica_, stage, IsLast(index), replica_.sequences, context_);
    StageTime time =
        LayersTime(topology_, model_, replica_, stage, batch, stage.layers.size(), set);
    if (IsLast(index) && outputs > 0) {
      const StageTime logits = LogitsTime(topology_, model_, stage, outputs, set);
      time.compute += logits.compute;
      time.exchange += logits.exchange;
    }
    absl::Duration step;
    for (const Site& site : stage.sites) {
      step = std::max(step, OverheadOf(RatesOf(topology_, site), batch.rows).step);
    }
    time.compute += step / stage.share.of_a_core;
    time.compute *= 1 + Refills(stage, set);
    return time;
  }
  StageTime OfDecodes(size_t index, int64_t rows) const {
    return Of(index, {rows, context_, rows}, rows);
  }

  // The longest way between two stages, activations of `rows`.
  absl::Duration Hop(int64_t rows, Receiver receiver) const {
    absl::Duration longest;
    for (size_t i = 1; i < replica_.stages.size(); ++i) {
      const std::vector<Site>& from = replica_.stages[i - 1].sites;
      const std::vector<Site>& to = replica_.stages[i].sites;
      for (size_t shard = 0; shard < from.size(); ++shard) {
        longest = std::max(
            longest, SendTime(topology_, from[shard], to[shard],
                              DTypeBytes(replica_.hops, rows * model_.hidden_size), receiver));
      }
    }
    return longest;
  }
  absl::Duration TokenHop(int64_t rows, Receiver receiver) const {
    if (replica_.stages.size() < 2) return absl::ZeroDuration();
    return TokenReturnTime(topology_, replica_.stages.back().sites.front(),
                           replica_.stages.front().sites.front(), rows, receiver);
  }

 private:
  // How much of a turn goes into caches that another rank has filled meanwhile. Who waits for
  // others gets no turns: its working set is all that of those that share its cores.
  double Refills(const Stage& stage, int64_t working_set) const {
    const bool takes_turns = IsAlone(replica_) && stage.share.of_a_core < 1;
    if (!takes_turns) return 0;
    CoreShare turn = stage.share;
    turn.of_a_core = 1;
    double most = 0;
    for (const Site& site : stage.sites) {
      const topology::DeviceRates& rates = RatesOf(topology_, site);
      const auto read = [&](double sets) {
        const auto all = static_cast<int64_t>(sets * static_cast<double>(working_set));
        return static_cast<double>(working_set) / ReadBytesPerS(rates, all, turn);
      };
      // A turn fills no more than it reads.
      const double longest = std::max(absl::ToDoubleSeconds(kTurn), read(1));
      most = std::max(most, (read(stage.share.sets) - read(1)) / longest);
    }
    return most;
  }

  const Topology& topology_;
  const ModelConfig& model_;
  const Replica& replica_;
  int64_t context_ = 0;
};

int64_t RowsOf(const Replica& replica) { return CeilDiv(replica.sequences, replica.micro_batches); }

// Of a micro-batch, by stage.
std::vector<StageTime> DecodeTimes(const Replica& replica, const StageClock& clock) {
  std::vector<StageTime> times;
  for (size_t i = 0; i < replica.stages.size(); ++i) {
    times.push_back(clock.OfDecodes(i, RowsOf(replica)));
  }
  return times;
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
  SKEIN_ASSIGN_OR_RETURN(const Receiver receiver, ReceiverOfDecodes(replica, clock, times));
  return Simulate(replica, clock, times, steps, receiver);
}

// Steady decode.
absl::Status PredictSteps(const Replica& replica, const StageClock& clock, ReplicaCost& cost) {
  const auto stages = static_cast<int32_t>(replica.stages.size());
  if (stages == 1) {
    const StageTime time = clock.OfDecodes(0, replica.sequences);
    cost.step = time.total();
    cost.exchange_share = absl::FDivDuration(time.exchange, cost.step);
    return absl::OkStatus();
  }
  const std::vector<StageTime> times = DecodeTimes(replica, clock);
  SKEIN_ASSIGN_OR_RETURN(const schedule::Timeline timeline,
                         SimulateAsRanksWait(replica, clock, times, kSteps));
  const schedule::SteadyState steady = schedule::FindSteadyState(timeline);
  cost.step = steady.step_period;
  cost.bubble = steady.bubble;
  absl::Duration exchange;
  for (const StageTime& time : times) exchange = std::max(exchange, time.exchange);
  cost.exchange_share = absl::FDivDuration(replica.micro_batches * exchange, cost.step);
  return absl::OkStatus();
}

// A prompt in chunks: until its first token is drawn, and as the slowest stage is busy with it.
struct PromptTime {
  absl::Duration first_token;
  absl::Duration busy;
};
PromptTime TimePrompt(const Replica& replica, const StageClock& clock, const Workload& workload) {
  PromptTime time;
  std::vector<absl::Duration> stage_free(replica.stages.size());
  std::vector<absl::Duration> busy(replica.stages.size());
  int64_t before = 0;
  while (before < workload.prompt_tokens) {
    const int64_t rows = std::min(replica.max_micro_batch_rows, workload.prompt_tokens - before);
    const bool last = before + rows == workload.prompt_tokens;
    const absl::Duration asleep = clock.Hop(rows, Receiver::kAsleep);
    const absl::Duration awake = clock.Hop(rows, Receiver::kAwake);
    absl::Duration arrived;
    for (size_t i = 0; i < replica.stages.size(); ++i) {
      const absl::Duration takes = clock.Of(i, {rows, before + rows / 2, 1}, last ? 1 : 0).total();
      stage_free[i] = std::max(stage_free[i], arrived) + takes;
      busy[i] += takes;
      if (i + 1 == replica.stages.size()) break;
      // Nothing was before the first chunk.
      const bool sleeps = before == 0 || stage_free[i] - stage_free[i + 1] > comm::kSpin;
      arrived = stage_free[i] + (sleeps ? asleep : awake);
    }
    before += rows;
  }
  time.first_token = stage_free.back();
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
  const int64_t steps = CeilDiv(workload.prompt_tokens, replica.max_micro_batch_rows);
  return place + prompts + step * (kStepsBefore + static_cast<double>(steps));
}

// Of a stage, whatever layers it gets: what is out of caches decides.
int64_t WholeSet(const ModelConfig& model, const Stage& stage) {
  return static_cast<int64_t>(
      static_cast<double>(LayerWeightBytes(model, ShardsOf(stage)) * model.num_layers) *
      stage.share.sets);
}

}  // namespace

absl::Duration LayerTime(const Topology& topology, const ModelConfig& model, const Replica& replica,
                         const Stage& stage, int64_t rows, int64_t context) {
  const int64_t set = WholeSet(model, stage);
  return LayersTime(topology, model, replica, stage, {rows, context, rows}, 1, set).total();
}

absl::Duration OutputTime(const Topology& topology, const ModelConfig& model, const Stage& stage,
                          int64_t rows) {
  const int64_t set = WholeSet(model, stage);
  return LogitsTime(topology, model, stage, rows, set).total();
}

absl::StatusOr<schedule::Timeline> SimulateDecodes(const Topology& topology,
                                                   const ModelConfig& model, const Replica& replica,
                                                   const Workload& workload, int32_t steps) {
  const StageClock clock(topology, model, replica, workload);
  return SimulateAsRanksWait(replica, clock, DecodeTimes(replica, clock), steps);
}

absl::StatusOr<absl::Duration> DecodeStepTime(const Topology& topology, const ModelConfig& model,
                                              const Replica& replica, int64_t context) {
  const StageClock clock(topology, model, replica, {.prompt_tokens = context, .output_tokens = 0});
  ReplicaCost cost;
  SKEIN_RETURN_IF_ERROR(PredictSteps(replica, clock, cost));
  return cost.step;
}

absl::StatusOr<ReplicaCost> PredictReplica(const Topology& topology, const ModelConfig& model,
                                           const Replica& replica, const Workload& workload) {
  const StageClock clock(topology, model, replica, workload);
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

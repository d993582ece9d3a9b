#include "parallel/cost/stage_cost.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "parallel/cost/layer_work.h"

namespace skein::cost {
namespace {

using model::ElementBytes;
using model::ModelConfig;
using model::TypeShare;
using topology::Topology;

int32_t ShardsOf(const Stage& stage) { return static_cast<int32_t>(stage.sites.size()); }

int64_t ActivationBytes(const Replica& replica, int64_t values) {
  return DTypeBytes(replica.activations, values);
}

// Keys and values of one token in one layer of a shard.
double TokenBytes(const ModelConfig& model, const Replica& replica, int32_t tp_size) {
  const int64_t heads = std::max<int64_t>(1, model.num_kv_heads / tp_size);
  return 2.0 * static_cast<double>(heads * model.head_dim) * replica.kv_bytes_per_value;
}

// What one kernel after the other reads and multiplies with for these rows. Reading overlaps with
// multiplying within a part, and not beyond it.
struct Part {
  double bytes = 0;
  double operations = 0;
  int64_t rows = 0;
  int64_t tasks = 1;  // of attention: a thread has one at a time
};

// What layers, or the output, have a rank do.
struct Work {
  Part products;
  Part decodes;  // their attention
  Part prompts;  // theirs
  int64_t layers = 0;
  double values_passed = 0;  // by each row in each layer
};

CoreShare Beside(CoreShare share) {
  share.together = true;
  return share;
}

// The seconds of decodes' attention, as a probe measured it. On cores it was measured beside
// others; alone it is as much faster as plain reads are.
double MeasuredAttention(const topology::DeviceRates& rates, CoreShare share, const Part& attention,
                         int64_t working_set_bytes) {
  // Of the last round of tasks some threads may have none.
  const auto tasks = static_cast<double>(attention.tasks);
  share.of_a_core *= tasks / share.threads / std::ceil(tasks / share.threads);
  const topology::AttentionRate rate = AttentionOf(rates, working_set_bytes, attention.rows, share);
  double read = attention.bytes / rate.bytes_per_s;
  if (!share.together) {
    read *= ReadBytesPerS(rates, working_set_bytes, Beside(share)) /
            ReadBytesPerS(rates, working_set_bytes, share);
  }
  return rate.operations_per_s > 0 ? read + attention.operations / rate.operations_per_s : read;
}

// The time of the slowest shard to read and multiply, with weights and then in attention, to begin
// layers, and for each row to pass values in each.
absl::Duration ComputeTime(const Topology& topology, const ModelConfig& model, const Stage& stage,
                           absl::Span<const TypeShare> types, const Work& work,
                           int64_t working_set_bytes) {
  const int64_t rows = work.products.rows;
  absl::Duration slowest;
  for (const Site& site : stage.sites) {
    const topology::DeviceRates& rates = RatesOf(topology, site);
    const double read = ReadBytesPerS(rates, working_set_bytes, stage.share);
    const double multiplied = OperationsPerS(rates, types, working_set_bytes, rows, stage.share);
    const auto attended = [&](const Part& part) {
      if (part.rows == 0) return 0.0;
      return std::max(part.bytes / read,
                      part.operations / OperationsPerS(rates, {TypeShare{model.dtype}},
                                                       working_set_bytes, part.rows, stage.share));
    };
    const double decodes =
        work.decodes.rows > 0 && !rates.attention.empty()
            ? MeasuredAttention(rates, stage.share, work.decodes, working_set_bytes)
            : attended(work.decodes);
    double multiplying =
        std::max(work.products.bytes / read, work.products.operations / multiplied);
    if (site.gpu < 0 && !stage.share.together) {
      // Products were measured beside others. What they take longer than in a cache, where they do,
      // is reads, which take less alone.
      const double beside = ReadBytesPerS(rates, working_set_bytes, Beside(stage.share));
      const double saved = work.products.bytes / beside - work.products.bytes / read;
      const double in_cache =
          work.products.operations /
          OperationsPerS(rates, types, /*working_set_bytes=*/1, rows, stage.share);
      const double least = std::max(work.products.bytes / read, std::min(in_cache, multiplying));
      multiplying = std::min(multiplying, std::max(multiplying - saved, least));
    }
    double begun = absl::ToDoubleSeconds(OverheadOf(rates, rows).layer);
    if (rates.passed_values_per_s > 0) {
      begun += static_cast<double>(rows) * work.values_passed / rates.passed_values_per_s;
    }
    const double seconds = multiplying + decodes + attended(work.prompts) +
                           static_cast<double>(work.layers) * begun / stage.share.of_a_core;
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
                     const Stage& stage, const Batch& batch, int64_t layers, int64_t working_set) {
  const int32_t tp = ShardsOf(stage);
  const auto rows = static_cast<double>(batch.rows());
  const auto count = static_cast<double>(layers);
  const std::vector<TypeShare> types = model.LayerTypes();
  const double weights =
      ElementBytes(types) * LayerValues(model, tp, TouchedExperts(model, batch.rows()));
  const double values = LayerValues(model, tp, static_cast<double>(model.experts.chosen));
  const double share = ShareOfExperts(model);
  Work work = {.layers = layers, .values_passed = PassedValues(model, tp)};
  // Rows pass through memory between products.
  const double passed = rows * static_cast<double>(ActivationBytes(
                                   replica, static_cast<int64_t>(work.values_passed)));
  work.products = {.bytes = count * (weights + passed),
                   .operations = count * 2 * values * rows,
                   .rows = batch.rows()};
  const auto attention = [&](int64_t attending, int64_t context, double reads) {
    const double seen = SeenTokens(model, context);
    const double heads = 4.0 * static_cast<double>(model.num_heads / tp * model.head_dim);
    return Part{.bytes = count * TokenBytes(model, replica, tp) * seen * reads,
                .operations = count * heads * seen * static_cast<double>(attending),
                .rows = attending,
                .tasks = attending * std::max<int64_t>(1, model.num_kv_heads / tp)};
  };
  work.decodes = attention(batch.decodes, batch.context, static_cast<double>(batch.decodes));
  work.prompts = attention(batch.prompt_rows, batch.prompt_context, batch.prompts);
  StageTime time;
  time.compute = ComputeTime(topology, model, stage, types, work, working_set);
  // Behind attention and behind the MLP, or what each chosen expert of a row adds.
  const auto sum_of = [&](int64_t rows_of_hidden) {
    const int64_t bytes = DTypeBytes(replica.sums, rows_of_hidden * model.hidden_size);
    return replica.sums_by_hosts ? HostSumTime(topology, stage.sites, bytes)
                                 : AllReduceTime(topology, stage.sites, bytes, stage.share);
  };
  const absl::Duration sum = sum_of(batch.rows());
  time.exchange = layers * (2 - share) * sum;
  if (share > 0) {
    time.exchange += layers * share * sum_of(batch.rows() * model.experts.chosen);
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
  const Work work = {.products = {.bytes = weights,
                                  .operations = 2 * values * static_cast<double>(rows),
                                  .rows = rows}};
  time.compute = ComputeTime(topology, model, stage, types, work, working_set);
  // Shards exchange what each row drew, not its logits.
  time.exchange = AllGatherTime(topology, stage.sites, rows * int64_t{16} * tp, stage.share);
  return time;
}

// Of a stage, whatever layers it gets: what is out of caches decides.
int64_t WholeSet(const ModelConfig& model, const Stage& stage) {
  return static_cast<int64_t>(
      static_cast<double>(LayerWeightBytes(model, ShardsOf(stage)) * model.num_layers) *
      stage.share.sets);
}

}  // namespace

StageTime StageClock::Of(size_t index, const Batch& batch) const {
  return TimeOf(replica_.stages[index], index + 1 == replica_.stages.size(), batch);
}

StageTime StageClock::AloneOnCore(size_t index, int64_t rows) const {
  Stage stage = replica_.stages[index];
  stage.share.of_a_core = 1;
  return TimeOf(stage, index + 1 == replica_.stages.size(),
                {.decodes = rows, .context = context_, .outputs = rows});
}

StageTime StageClock::TimeOf(const Stage& stage, bool is_last, const Batch& batch) const {
  const int64_t set = WorkingSet(model_, replica_, stage, is_last, replica_.sequences, context_);
  StageTime time = LayersTime(topology_, model_, replica_, stage, batch, stage.layers.size(), set);
  if (is_last && batch.outputs > 0) {
    const StageTime logits = LogitsTime(topology_, model_, stage, batch.outputs, set);
    time.compute += logits.compute;
    time.exchange += logits.exchange;
  }
  absl::Duration step;
  for (const Site& site : stage.sites) {
    step = std::max(step, OverheadOf(RatesOf(topology_, site), batch.rows()).step);
  }
  time.compute += step / stage.share.of_a_core;
  time.compute = InTurns(stage, set, time.compute);
  return time;
}

std::vector<StageTime> StageClock::OfAll(const Batch& batch) const {
  const std::vector<Stage>& stages = replica_.stages;
  std::vector<StageTime> times;
  for (size_t i = 0; i < stages.size(); ++i) times.push_back(Of(i, batch));
  // Of the threads that share a host's cores, with equal shares.
  struct Sharers {
    absl::Duration compute;  // of all threads
    double threads = 0;
  };
  std::map<int32_t, Sharers> by_host;
  const auto shares = [&](size_t i) { return stages[i].share.of_a_core < 1; };
  for (size_t i = 0; i < stages.size(); ++i) {
    if (!shares(i)) continue;
    Sharers& sharers = by_host[stages[i].sites.front().host];
    const double threads = ShardsOf(stages[i]) * stages[i].share.threads;
    sharers.compute += threads * times[i].compute;
    sharers.threads += threads;
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    if (!shares(i)) continue;
    const Sharers& sharers = by_host.at(stages[i].sites.front().host);
    // No thread has more than a core.
    const absl::Duration least = times[i].compute * stages[i].share.of_a_core;
    times[i].compute =
        std::min(times[i].compute, std::max(least, sharers.compute / sharers.threads));
  }
  return times;
}

absl::Duration StageClock::Hop(int64_t rows, Receiver receiver) const {
  absl::Duration longest;
  for (size_t i = 1; i < replica_.stages.size(); ++i) {
    const std::vector<Site>& from = replica_.stages[i - 1].sites;
    const std::vector<Site>& to = replica_.stages[i].sites;
    for (size_t shard = 0; shard < from.size(); ++shard) {
      longest = std::max(longest,
                         SendTime(topology_, from[shard], to[shard],
                                  DTypeBytes(replica_.hops, rows * model_.hidden_size), receiver));
    }
  }
  return longest;
}

absl::Duration StageClock::TokenHop(int64_t rows, Receiver receiver) const {
  if (replica_.stages.size() < 2) return absl::ZeroDuration();
  return TokenReturnTime(topology_, replica_.stages.back().sites.front(),
                         replica_.stages.front().sites.front(), rows, receiver);
}

// The mean of the steps of a turn, of which the first ones bring back what another rank has put out
// of caches meanwhile. Who waits for others gets no turns: its working set is all that of those
// that share its cores.
absl::Duration StageClock::InTurns(const Stage& stage, int64_t working_set,
                                   absl::Duration step) const {
  constexpr int kMostPasses = 64;  // what has not come back with them never does
  const bool takes_turns = IsAlone(replica_) && stage.share.of_a_core < 1;
  if (!takes_turns) return step;
  const absl::Duration held = step * stage.share.of_a_core;
  absl::Duration slowest = held;
  for (const Site& site : stage.sites) {
    auto [missed, again] = MissedBehindOthers(RatesOf(topology_, site), working_set, stage.share);
    absl::Duration left = kTurn;
    double steps = 0;
    for (; steps < kMostPasses && held + missed < left; ++steps) {
      left -= held + missed;
      missed *= again;
    }
    steps += absl::FDivDuration(left, held + missed);
    slowest = std::max(slowest, kTurn / steps);
  }
  return slowest / stage.share.of_a_core;
}

absl::Duration LayerTime(const Topology& topology, const ModelConfig& model, const Replica& replica,
                         const Stage& stage, int64_t rows, int64_t context) {
  const int64_t set = WholeSet(model, stage);
  return LayersTime(topology, model, replica, stage, {.decodes = rows, .context = context}, 1, set)
      .total();
}

absl::Duration OutputTime(const Topology& topology, const ModelConfig& model, const Stage& stage,
                          int64_t rows) {
  const int64_t set = WholeSet(model, stage);
  return LogitsTime(topology, model, stage, rows, set).total();
}

}  // namespace skein::cost

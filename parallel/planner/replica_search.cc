#include "parallel/planner/replica_search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "kernels/ops/sizes.h"
#include "parallel/plan/held_pages.h"
#include "parallel/plan/prompt_pieces.h"
#include "parallel/planner/device_rules.h"
#include "parallel/planner/goal.h"
#include "parallel/planner/kv_bytes.h"
#include "parallel/planner/layer_split.h"
#include "parallel/planner/micro_batches.h"

namespace skein::plan {
namespace {

using cost::Replica;
using cost::Site;
using cost::Stage;

cost::CoreShare ShareOf(const topology::Host& host, const Site& site, const HostShare& share) {
  if (site.gpu >= 0) return {};
  return cost::ShareOfCores(host.cores, std::max(1, host.cores / share.ranks), share.ranks,
                            share.active);
}

std::string NameOf(const topology::Topology& topology, const Site& site) {
  const topology::Host& host = topology.hosts[site.host];
  if (site.gpu < 0) return absl::StrCat("a rank on host ", host.name);
  return absl::StrCat(host.interconnect.gpus[site.gpu].name, " of host ", host.name);
}

}  // namespace

int64_t NeededBytes(const RankMemory& memory, const Site& site) {
  return site.gpu >= 0 ? memory.device_bytes() : memory.total();
}

ReplicaSearch::ReplicaSearch(const ReplicaTask& task) : task_(task), kinds_(task.topology) {}

absl::StatusOr<JudgedReplica> ReplicaSearch::Judge(const std::vector<Group>& stages,
                                                   int32_t sequences, const HostShare& share) {
  const std::string key =
      absl::StrCat(sequences, ";", share.ranks, ";", share.active, ";", kinds_.KeyOf(stages));
  auto found = judged_.find(key);
  if (found == judged_.end()) {
    found = judged_.emplace(key, JudgeAnew(stages, sequences, share)).first;
  }
  absl::StatusOr<JudgedReplica> judged = found->second;
  if (!judged.ok()) return judged;
  for (size_t i = 0; i < stages.size(); ++i) judged->replica.stages[i].sites = stages[i];
  return judged;
}

absl::StatusOr<JudgedReplica> ReplicaSearch::JudgeAnew(const std::vector<Group>& stages,
                                                       int32_t asked, const HostShare& share) {
  const auto pp = static_cast<int32_t>(stages.size());
  const int32_t sequences = std::min(asked, task_.max_num_seqs);
  JudgedReplica judged;
  Replica& replica = judged.replica;
  replica.sequences = sequences;
  replica.max_micro_batch_rows = task_.max_micro_batch_rows;
  replica.prompt_pieces = PromptPieces(pp);
  replica.activations = replica.hops = task_.activations;
  const auto tp = static_cast<int32_t>(stages.front().size());
  replica.sums = SumDType(task_.activations, task_.deterministic);
  replica.sums_by_hosts = SumsByHosts(task_.device, task_.deterministic, tp);
  replica.kv_bytes_per_value = KvBytesPerValue(task_.kv_dtype, task_.model.head_dim);
  for (const Group& group : stages) {
    const Site& site = group.front();
    replica.stages.push_back(
        {.sites = group, .share = ShareOf(task_.topology.hosts[site.host], site, share)});
  }
  const ReplicaLimits limits = LimitsOf(stages);
  replica.micro_batches = std::min(pp, sequences);
  SKEIN_RETURN_IF_ERROR(Split(limits, share, replica));
  SKEIN_RETURN_IF_ERROR(FitMemory(limits, share, sequences, judged));
  const int32_t most = replica.sequences;
  SKEIN_RETURN_IF_ERROR(Time(asked, most, judged));
  if (!task_.tpot_limit || judged.cost.tpot <= *task_.tpot_limit) return judged;
  const int32_t kept = MostSequences(most, [&](int32_t fewer) {
    return Time(asked, fewer, judged).ok() && judged.cost.tpot <= *task_.tpot_limit;
  });
  judged.bounded = kept > 0;
  SKEIN_RETURN_IF_ERROR(Time(asked, judged.bounded ? kept : most, judged));
  return judged;
}

absl::Status ReplicaSearch::Time(int32_t asked, int32_t sequences, JudgedReplica& judged) const {
  Replica& replica = judged.replica;
  const auto pp = static_cast<int32_t>(replica.stages.size());
  replica.sequences = sequences;
  replica.waiting = asked - sequences;
  std::map<int32_t, absl::StatusOr<cost::ReplicaCost>> known;
  const auto predict = [&](int32_t micro_batches) -> std::optional<absl::Duration> {
    replica.micro_batches = micro_batches;
    const auto& cost = known
                           .emplace(micro_batches, cost::PredictReplica(task_.topology, task_.model,
                                                                        replica, task_.workload))
                           .first->second;
    if (!cost.ok()) return std::nullopt;
    return cost->step;
  };
  replica.micro_batches = BestMicroBatches(pp, sequences, predict);
  SKEIN_ASSIGN_OR_RETURN(judged.cost, known.at(replica.micro_batches));
  return absl::OkStatus();
}

ReplicaLimits ReplicaSearch::LimitsOf(const std::vector<Group>& stages) const {
  ReplicaLimits limits;
  limits.tp_size = static_cast<int32_t>(stages.front().size());
  limits.ep_size = task_.ep_size;
  limits.context_length = task_.context_length;
  limits.max_num_seqs = task_.max_num_seqs;
  limits.max_micro_batch_rows = task_.max_micro_batch_rows;
  limits.page_size = kernels::PageTokens(task_.device);
  limits.kv_dtype = task_.kv_dtype;
  limits.hop_dtype = task_.activations;
  limits.deterministic = task_.deterministic;
  limits.window = task_.model.LargestWindow(task_.context_length);
  limits.step_rows = int64_t{limits.max_micro_batch_rows} * static_cast<int64_t>(stages.size());
  limits.pages = limits.held_pages();
  limits.device = task_.device;
  limits.nccl = task_.device == DeviceKind::kCuda;
  limits.peers = limits.nccl && stages.front().front().host == stages.front().back().host;
  return limits;
}

// Of the last shard, which none is larger than. `layers` counts by its size and ends alone; of
// quantised ones some are larger than others, by little.
absl::StatusOr<RankMemory> ReplicaSearch::MemoryOf(const ReplicaLimits& limits, Range layers) {
  const auto key = std::tuple(limits.tp_size, limits.peers, limits.pages, layers.size(),
                              layers.begin == 0, layers.end == task_.model.num_layers);
  const auto found = memories_.find(key);
  if (found != memories_.end()) return found->second;
  SKEIN_ASSIGN_OR_RETURN(const RankMemory memory,
                         MemoryOfRank(task_.model, limits.tp_size - 1, layers, limits));
  memories_.emplace(key, memory);
  return memory;
}

int64_t ReplicaSearch::UsableBytesOf(const Site& site, const HostShare& share) const {
  const topology::Host& host = task_.topology.hosts[site.host];
  if (site.gpu >= 0) return UsableBytes(host.interconnect.gpus[site.gpu].memory_bytes);
  return UsableBytes(host.memory_bytes) / share.ranks;
}

// A rank's memory grows by the same with each layer.
absl::StatusOr<int64_t> ReplicaSearch::MostLayers(const ReplicaLimits& limits, const Group& sites,
                                                  bool first, bool last, const HostShare& share) {
  const int64_t layers = task_.model.num_layers;
  const auto range = [&](int64_t count) {
    if (first) return Range{0, count};
    return last ? Range{layers - count, layers} : Range{1, 1 + count};
  };
  const int64_t more = layers - (first ? 0 : 1) - (last ? 0 : 1);  // that such a stage can have
  if (more < 2) return std::max<int64_t>(more, 1);
  SKEIN_ASSIGN_OR_RETURN(const RankMemory one, MemoryOf(limits, range(1)));
  SKEIN_ASSIGN_OR_RETURN(const RankMemory two, MemoryOf(limits, range(2)));
  int64_t most = layers;
  for (const Site& site : sites) {
    const int64_t left = UsableBytesOf(site, share) - NeededBytes(one, site);
    const int64_t each = std::max<int64_t>(1, NeededBytes(two, site) - NeededBytes(one, site));
    most = std::min(most, left < 0 ? 0 : 1 + left / each);
  }
  return most;
}

absl::Status ReplicaSearch::Split(const ReplicaLimits& limits, const HostShare& share,
                                  Replica& replica) {
  const size_t pp = replica.stages.size();
  if (pp == 1) {
    replica.stages[0].layers = {0, task_.model.num_layers};
    return absl::OkStatus();
  }
  const int64_t context = task_.workload.prompt_tokens + task_.workload.output_tokens / 2;
  const int64_t rows = std::max<int64_t>(1, replica.sequences / replica.micro_batches);
  std::vector<StageSpeed> speeds;
  for (size_t i = 0; i < pp; ++i) {
    const Stage& stage = replica.stages[i];
    StageSpeed speed;
    speed.layer = LayerTime(task_.topology, task_.model, replica, stage, rows, context);
    if (i + 1 == pp) {
      speed.beside = OutputTime(task_.topology, task_.model, stage, rows);
    }
    SKEIN_ASSIGN_OR_RETURN(speed.max_layers,
                           MostLayers(limits, stage.sites, i == 0, i + 1 == pp, share));
    speeds.push_back(speed);
  }
  const std::vector<Range> split = SplitLayers(task_.model.num_layers, speeds);
  if (split.empty()) {
    int64_t room = 0;
    for (const StageSpeed& speed : speeds) room += speed.max_layers;
    return absl::FailedPreconditionError(
        absl::StrCat("memory has room for ", room, " of ", task_.model.num_layers,
                     " layers, with one sequence of ", limits.context_length, " tokens"));
  }
  for (size_t i = 0; i < pp; ++i) replica.stages[i].layers = split[i];
  return absl::OkStatus();
}

absl::Status ReplicaSearch::FitMemory(const ReplicaLimits& limits, const HostShare& share,
                                      int32_t sequences, JudgedReplica& judged) {
  int64_t pages = limits.max_num_seqs * limits.held_pages();
  double least_room = std::numeric_limits<double>::infinity();
  struct {
    size_t stage = 0;
    Site site;
  } fullest;
  for (const Stage& stage : judged.replica.stages) {
    SKEIN_ASSIGN_OR_RETURN(const RankMemory memory, MemoryOf(limits, stage.layers));
    for (const Site& site : stage.sites) {
      const int64_t usable = UsableBytesOf(site, share);
      const int64_t needed = NeededBytes(memory, site);
      if (needed > usable) {
        return absl::FailedPreconditionError(absl::StrCat(
            NameOf(task_.topology, site), " would need ", FormatBytes(needed), " (weights ",
            FormatBytes(memory.weight_bytes), ") with one sequence of ", limits.context_length,
            " tokens, and has ", FormatBytes(usable), " to use"));
      }
      const int64_t fits = (usable - needed + memory.kv_bytes) / memory.page_bytes;
      pages = std::min(pages, fits);
      const double room = static_cast<double>(fits) / static_cast<double>(limits.held_pages());
      if (room < least_room) {
        least_room = room;
        fullest = {judged.memory.size(), site};
        judged.usable_bytes = usable;
      }
    }
    judged.memory.push_back(memory);
  }
  for (RankMemory& memory : judged.memory) memory.kv_bytes = pages * memory.page_bytes;
  judged.needed_bytes = NeededBytes(judged.memory[fullest.stage], fullest.site);
  const int64_t tokens = task_.workload.prompt_tokens + task_.workload.output_tokens;
  const int64_t each = MostHeldPages(tokens, limits.window, limits.step_rows, limits.page_size);
  judged.replica.sequences =
      static_cast<int32_t>(std::max<int64_t>(1, std::min<int64_t>(sequences, pages / each)));
  return absl::OkStatus();
}

}  // namespace skein::plan

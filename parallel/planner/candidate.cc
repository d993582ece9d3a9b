#include "parallel/planner/candidate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "parallel/cost/device_cost.h"
#include "parallel/plan/shard.h"
#include "parallel/planner/device_rules.h"
#include "parallel/planner/fit.h"
#include "parallel/planner/job_placement.h"
#include "parallel/planner/memory.h"
#include "parallel/planner/micro_batches.h"
#include "parallel/planner/predict_plan.h"

namespace skein::plan {
namespace {

std::string Sequences(int32_t count, int64_t context_length) {
  return absl::StrCat(FormatCount(count, "sequence"), " of ", FormatCount(context_length, "token"));
}

// Judges which nodes the shards of every stage find.
void JudgePlacement(const Job& job, Candidate& candidate) {
  const Layout& layout = candidate.layout;
  for (int32_t first = 0; first < layout.ranks() && candidate.crossing.empty();
       first += layout.tp_size) {
    std::set<int32_t> nodes;
    for (int32_t i = 0; i < layout.tp_size; ++i) {
      nodes.insert(job.machine.devices[candidate.ranks[first + i]].node);
    }
    if (nodes.size() == 1) continue;
    std::vector<std::string> hosts;
    for (int32_t node : nodes) hosts.push_back(job.machine.nodes[node].host);
    candidate.crossing = absl::StrJoin(hosts, " and ");
  }
}

// A micro-batch for every stage, so that all of them work on a prompt at the same time.
int64_t MaxBatchedTokens(const Job& job, const Layout& layout) {
  if (job.max_num_batched_tokens > 0) return job.max_num_batched_tokens;
  return std::max<int64_t>(int64_t{job.micro_batch_rows} * layout.pp_size, job.max_num_seqs);
}

// Whether some stage's shards are all on one node.
bool SharesANode(const Job& job, const Candidate& of) {
  const auto node = [&](int32_t rank) { return job.machine.devices[rank].node; };
  for (auto stage = of.ranks.begin(); stage != of.ranks.end(); stage += of.layout.tp_size) {
    if (std::all_of(stage, stage + of.layout.tp_size,
                    [&](int32_t rank) { return node(rank) == node(*stage); })) {
      return true;
    }
  }
  return false;
}

ReplicaLimits LimitsWithoutPages(const Job& job, const Candidate& of) {
  const Layout& layout = of.layout;
  ReplicaLimits limits;
  limits.device = job.device;
  limits.nccl = job.machine.devices.front().nccl;
  limits.peers = job.machine.devices.front().peers && SharesANode(job, of);
  limits.tp_size = layout.tp_size;
  limits.ep_size = layout.ep_size;
  limits.context_length = job.context_length;
  limits.max_num_seqs = job.max_num_seqs;
  limits.max_micro_batch_rows =
      static_cast<int32_t>((MaxBatchedTokens(job, layout) + layout.pp_size - 1) / layout.pp_size);
  limits.page_size = job.page_size;
  limits.kv_dtype = job.kv_dtype;
  limits.hop_dtype = job.hop_dtype;
  limits.deterministic = job.deterministic;
  limits.exact = job.exact;
  limits.window = job.model.LargestWindow(job.context_length);
  limits.step_rows = MaxBatchedTokens(job, layout);
  return limits;
}

std::string KvMemoryAsked(const KvMemory& memory) {
  if (memory.fraction > 0) return absl::StrCat(memory.fraction, " of the memory that is left");
  return absl::StrCat(FormatBytes(memory.bytes_per_rank), " per rank");
}

// Refuses limits.pages. One sequence with a full context is the least that may be.
absl::Status MemoryRefusal(const Job& job, const Fit& fit, const ReplicaLimits& limits,
                           const Pool& pool) {
  const bool least = limits.pages == limits.held_pages();
  std::string refusal = absl::StrCat(
      pool.name, " would need ", FormatBytes(pool.NeededBytes(limits.pages, limits.swap_pages)),
      " for ",
      least ? Sequences(1, job.context_length)
            : absl::StrCat(FormatCount(limits.pages, "page"), ", ", KvMemoryAsked(job.kv_memory)),
      limits.swap_pages > 0 ? absl::StrCat(" and ", limits.swap_pages, " pages to swap to") : "",
      " and has ", FormatBytes(pool.usable_bytes()), " to use (7/8 of ",
      FormatBytes(pool.free_bytes), " free)");
  const int64_t fitting = fit.FittingPages(1, limits.swap_pages);
  if (!least && fitting >= limits.held_pages()) {
    absl::StrAppend(&refusal, "; ", FormatCount(fitting, "page"), " would fit, ",
                    FormatBytes(fitting * fit.PageBytes()), " per rank");
  } else if (fitting > 0) {
    absl::StrAppend(&refusal, "; one sequence with a context of ", fitting * limits.page_size,
                    " would fit");
  } else {
    absl::StrAppend(&refusal, "; not even a short context would fit");
  }
  return absl::FailedPreconditionError(refusal);
}

absl::Status BudgetRefusal(const Job& job, const Fit& fit, const ReplicaLimits& limits,
                           int64_t pages) {
  return absl::FailedPreconditionError(absl::StrCat(
      "KV caches of ", KvMemoryAsked(job.kv_memory), " have ", FormatCount(pages, "page"), " of ",
      limits.page_size, " tokens; ", Sequences(1, job.context_length), " needs ",
      limits.held_pages(), ", ", FormatBytes(limits.held_pages() * fit.PageBytes()), " per rank"));
}

std::string CacheReason(const Job& job, const ReplicaLimits& limits, int64_t wanted_pages) {
  std::string reason =
      absl::StrCat(FormatCount(limits.pages, "page"), " of ", limits.page_size, " tokens: ");
  if (job.kv_memory != KvMemory{}) {
    absl::StrAppend(&reason, KvMemoryAsked(job.kv_memory), ", as asked. ");
  } else if (limits.pages < wanted_pages) {
    absl::StrAppend(&reason, "memory has no room for more. ");
  } else {
    return absl::StrCat(reason, Sequences(limits.max_num_seqs, limits.context_length),
                        " have room at the same time.");
  }
  return absl::StrCat(reason, Sequences(limits.max_num_seqs, limits.context_length), " need ",
                      wanted_pages, " if all grow to their full length.");
}

// Says what the pool's ranks need it for.
std::string MemoryReason(const ReplicaLimits& limits, const Pool& pool) {
  const int64_t swap = limits.swap_pages * pool.swap_page_bytes;
  return absl::StrCat(
      "Memory: ", pool.name, ", the fullest, needs ",
      FormatBytes(pool.NeededBytes(limits.pages, limits.swap_pages)), " of ",
      FormatBytes(pool.free_bytes), ": weights ", FormatBytes(pool.weight_bytes), ", KV ",
      FormatBytes(limits.pages * pool.page_bytes),
      swap > 0 ? absl::StrCat(", swap ", FormatBytes(swap)) : "", ", buffers ",
      FormatBytes(pool.buffer_bytes),
      pool.context_bytes > 0 ? absl::StrCat(", context ", FormatBytes(pool.context_bytes),
                                            ", graphs ", FormatBytes(pool.graph_bytes))
                             : "",
      pool.exchange_bytes > 0 ? absl::StrCat(", exchange ", FormatBytes(pool.exchange_bytes)) : "",
      ", programs ", FormatBytes(pool.program_bytes), ".");
}

// Puts the pages of the plan into `limits`. FailedPrecondition: why there can be none.
absl::Status ChoosePages(const Job& job, const Fit& fit, ReplicaLimits& limits,
                         Candidate& candidate) {
  limits.swap_pages = std::min(fit.PagesIn(job.swap_memory_bytes), kMaxPages);
  if (job.swap_memory_bytes > 0 && limits.swap_pages == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("swap memory of ", FormatBytes(job.swap_memory_bytes),
                     " per rank has no room for one page of ", FormatBytes(fit.PageBytes())));
  }
  const int64_t wanted = limits.max_num_seqs * limits.held_pages();
  int64_t pages = 0;
  if (job.kv_memory.bytes_per_rank > 0) {
    pages = std::min(fit.PagesIn(job.kv_memory.bytes_per_rank), kMaxPages);
  } else if (job.kv_memory.fraction > 0) {
    pages = fit.FittingPages(job.kv_memory.fraction, limits.swap_pages);
  } else {
    pages = std::min(wanted, fit.FittingPages(1, limits.swap_pages));
  }
  limits.pages = std::max(pages, limits.held_pages());
  const Pool& fullest = fit.Fullest(limits.pages, limits.swap_pages);
  candidate.memory_ratio = fullest.Ratio(limits.pages, limits.swap_pages);
  if (fullest.NeededBytes(limits.pages, limits.swap_pages) > fullest.usable_bytes()) {
    return MemoryRefusal(job, fit, limits, fullest);
  }
  if (pages < limits.held_pages()) return BudgetRefusal(job, fit, limits, pages);

  candidate.memory_reason = MemoryReason(limits, fullest);
  candidate.cache_reason = CacheReason(job, limits, wanted);
  return absl::OkStatus();
}

void JudgeMemory(const Job& job, Candidate& candidate) {
  ReplicaLimits limits = LimitsWithoutPages(job, candidate);
  const absl::StatusOr<Fit> made = Fit::Create(job, candidate, limits);
  if (!made.ok()) {
    candidate.refusal = made.status();
    return;
  }
  const Fit& fit = *made;
  candidate.refusal = ChoosePages(job, fit, limits, candidate);
  if (!candidate.refusal.ok()) return;

  Plan& plan = candidate.plan;
  plan.layout = candidate.layout;
  plan.max_num_seqs = limits.max_num_seqs;
  plan.max_micro_batch_rows = limits.max_micro_batch_rows;
  plan.max_num_batched_tokens = MaxBatchedTokens(job, plan.layout);
  plan.page_size = limits.page_size;
  plan.pages = limits.pages;
  plan.swap_pages = limits.swap_pages;
  plan.kv_dtype = limits.kv_dtype;
  plan.hop_dtype = limits.hop_dtype;
  plan.deterministic = limits.deterministic;
  plan.exact = limits.exact;
  plan.context_length = limits.context_length;
  plan.ranks.clear();
  const std::vector<int32_t> ranks_of_nodes = RanksOfNodes(job.machine, candidate.ranks);
  for (size_t place = 0; place < candidate.ranks.size(); ++place) {
    const auto at = static_cast<int32_t>(place);
    RankPlan rank;
    rank.rank = candidate.ranks[place];
    rank.tp_rank = at % plan.layout.tp_size;
    rank.pp_rank = at / plan.layout.tp_size % plan.layout.pp_size;
    rank.dp_rank = at / (plan.layout.tp_size * plan.layout.pp_size);
    rank.layers = candidate.layers[place];
    rank.device = job.machine.devices[rank.rank];
    rank.threads = std::max(1, job.NodeOf(rank.rank).cores / ranks_of_nodes[rank.device.node]);
    RankMemory memory = fit.at(place);
    memory.kv_bytes = plan.pages * memory.page_bytes;
    memory.swap_bytes = plan.swap_pages * memory.page_bytes;
    rank.weight_bytes = memory.weight_bytes;
    rank.kv_bytes = memory.kv_bytes;
    const bool own = rank.device.memory_bytes > 0;
    rank.memory_bytes = own ? memory.device_bytes() : memory.total();
    rank.host_bytes = own ? memory.process_bytes() + memory.swap_bytes : rank.memory_bytes;
    plan.ranks.push_back(rank);
  }
  plan.idle_ranks.clear();
  for (int32_t rank = 0; rank < job.ranks(); ++rank) {
    if (plan.Find(rank) == nullptr) plan.idle_ranks.push_back(rank);
  }
}

std::string MicroBatchReason(const Plan& plan, absl::Duration taken, absl::Duration other) {
  const int32_t stages = plan.layout.pp_size;
  if (plan.micro_batches < stages) {
    return absl::StrCat("A micro-batch of decodes for each sequence: with ", plan.micro_batches,
                        " of them some of the ", stages, " stages idle.");
  }
  const int32_t more = plan.micro_batches - stages;
  std::string reason = absl::StrCat(plan.micro_batches, " micro-batches of decodes, ");
  if (more == 0) {
    absl::StrAppend(&reason, "one for each stage, so that all stages work at the same time");
  } else {
    absl::StrAppend(&reason, more == 1 ? "one" : absl::StrCat(more),
                    " more than stages, to hide their hops");
  }
  if (other == absl::ZeroDuration()) return reason + ".";
  return absl::StrCat(reason, ": a step would take ", FormatMilliseconds(taken), ", with ",
                      more > 0 ? stages : stages + 1, " ", FormatMilliseconds(other), ".");
}

// The last to judge: it reads the rest of the plan. Memory holds one micro-batch at a time, so that
// their number takes none.
void JudgeTime(const Job& job, Candidate& candidate) {
  Plan& plan = candidate.plan;
  const int32_t stages = plan.layout.pp_size;
  const auto predict = [&](int32_t micro_batches) {
    plan.micro_batches = micro_batches;
    return PredictPlan(job.machine, job.topology, job.kinds, job.model, plan, job.workload);
  };
  std::map<int32_t, absl::StatusOr<Standing>> known;
  const int32_t best = BestMicroBatches(
      stages, plan.max_num_seqs, [&](int32_t count) -> std::optional<absl::Duration> {
        const absl::StatusOr<Standing>& of = known.emplace(count, predict(count)).first->second;
        if (!of.ok()) return std::nullopt;
        return of->cost.step;
      });
  plan.micro_batches = best;
  const absl::StatusOr<Standing>& taken = known.at(best);
  const auto compared = known.find(best > stages ? stages : stages + 1);
  absl::Duration other;
  if (compared != known.end() && compared->second.ok()) other = compared->second->cost.step;
  candidate.refusal = taken.status();
  if (!taken.ok()) return;
  candidate.standing = *taken;
  if (stages > 1) {
    candidate.micro_batch_reason = MicroBatchReason(plan, taken->cost.step, other);
  }
}

// What a stage holds by bytes, for each rank.
std::vector<Range> EvenLayers(const Job& job, const Layout& layout) {
  std::vector<Range> layers;
  for (int32_t place = 0; place < layout.ranks(); ++place) {
    layers.push_back(
        BalancedStageLayers(job.model, layout.pp_size, place / layout.tp_size % layout.pp_size));
  }
  return layers;
}

// What makes stages take equally long, for each rank. Errors are ReplicaSearch's.
absl::StatusOr<std::vector<Range>> LayersBySpeed(const Job& job, const Candidate& of,
                                                 ReplicaSearch& splits) {
  const Layout& layout = of.layout;
  const std::vector<int32_t> on_node = RanksOfNodes(job.machine, of.ranks);
  const std::vector<cost::Site> sites = SitesOfRanks(job.machine);
  const int64_t share = job.workload.concurrency / layout.dp_size;
  const auto sequences = static_cast<int32_t>(std::clamp<int64_t>(share, 1, job.max_num_seqs));
  std::vector<Range> layers;
  auto rank = of.ranks.begin();
  for (int32_t replica = 0; replica < layout.dp_size; ++replica) {
    HostShare host;
    std::vector<Group> stages(layout.pp_size);
    for (Group& stage : stages) {
      for (int32_t shard = 0; shard < layout.tp_size; ++shard) {
        stage.push_back(sites[*rank++]);
        host.ranks = std::max(host.ranks, on_node[stage.back().host]);
      }
    }
    host.active = cost::ActiveRanks(host.ranks, layout.tp_size, layout.pp_size, sequences);
    SKEIN_ASSIGN_OR_RETURN(const JudgedReplica judged, splits.Judge(stages, sequences, host));
    for (const cost::Stage& stage : judged.replica.stages) {
      layers.insert(layers.end(), layout.tp_size, stage.layers);
    }
  }
  return layers;
}

// Of one replica: "20 + 12".
std::string StageSizes(const Candidate& of, int32_t replica) {
  std::vector<int64_t> sizes;
  for (int32_t stage = 0; stage < of.layout.pp_size; ++stage) {
    sizes.push_back(of.layers[(replica * of.layout.pp_size + stage) * of.layout.tp_size].size());
  }
  return absl::StrJoin(sizes, " + ");
}

void JudgeSplit(const Job& job, Candidate& candidate) {
  JudgeMemory(job, candidate);
  if (candidate.refusal.ok()) JudgeTime(job, candidate);
}

// Replaces the candidate where another split is worth it.
void TryLayersBySpeed(const Job& job, ReplicaSearch& splits, Candidate& candidate) {
  const absl::StatusOr<std::vector<Range>> layers = LayersBySpeed(job, candidate, splits);
  if (!layers.ok() || *layers == candidate.layers) return;
  Candidate other = candidate;
  other.refusal = absl::OkStatus();
  other.layers = *layers;
  JudgeSplit(job, other);
  if (!other.refusal.ok()) return;
  int32_t differs = 0;  // a replica
  while (StageSizes(other, differs) == StageSizes(candidate, differs)) ++differs;
  const std::string sizes = StageSizes(other, differs);
  const std::string even_sizes = StageSizes(candidate, differs);
  const double speed = other.standing.output_tokens_per_s;
  const double even = candidate.standing.output_tokens_per_s;
  if (!candidate.refusal.ok()) {
    other.split_reason = absl::StrCat("Stages have ", sizes, " layers: with ", even_sizes, " ",
                                      std::string(candidate.refusal.message()), ".");
  } else if (speed > even * (1 + std::max(kAlike, EvidenceOf(job.topology).spread))) {
    other.split_reason = absl::StrFormat(
        "Stages have %s layers, by how fast each is: %.4g tokens/s, where %s would do %.4g.", sizes,
        speed, even_sizes, even);
  } else {
    return;
  }
  candidate = std::move(other);
}

}  // namespace

absl::Status CheckPipelineParallel(const model::ModelConfig& model, int32_t pp_size) {
  if (pp_size <= model.num_layers) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("pp=", pp_size, ": ", pp_size, " stages of ", model.num_layers,
                   " layers cannot be, since a stage holds at least one"));
}

Candidate JudgeLayout(const Job& job, const Layout& layout, std::vector<int32_t> ranks,
                      ReplicaSearch& splits) {
  Candidate candidate;
  candidate.layout = layout;
  candidate.ranks = std::move(ranks);
  candidate.refusal = CheckTensorParallel(job.model, layout.tp_size, layout.ep_size);
  if (candidate.refusal.ok() && job.deterministic && !SumsAgreeAcrossLayouts(layout.tp_size)) {
    candidate.refusal = absl::FailedPreconditionError(
        absl::StrCat("tp=", layout.tp_size,
                     " sums in an order of its own, and --deterministic asks for that of 1, 2, 4 "
                     "and 8"));
  }
  candidate.sums_by_hosts = SumsByHosts(job.device, job.deterministic, layout.tp_size);
  candidate.refusal.Update(CheckPipelineParallel(job.model, layout.pp_size));
  if (!candidate.refusal.ok()) return candidate;
  JudgePlacement(job, candidate);
  candidate.layers = EvenLayers(job, layout);
  JudgeSplit(job, candidate);
  if (layout.pp_size > 1) TryLayersBySpeed(job, splits, candidate);
  return candidate;
}

}  // namespace skein::plan

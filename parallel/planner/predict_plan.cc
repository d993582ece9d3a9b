#include "parallel/planner/predict_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/ops/sizes.h"
#include "parallel/cost/step_cost.h"
#include "parallel/plan/held_pages.h"
#include "parallel/plan/prompt_pieces.h"
#include "parallel/plan/shard.h"
#include "parallel/planner/device_rules.h"
#include "parallel/planner/host_kinds.h"
#include "parallel/planner/job_placement.h"
#include "parallel/planner/kv_bytes.h"
#include "parallel/planner/placement.h"

namespace skein::plan {
namespace {

// Equal for replicas of one plan and topology that are predicted alike.
std::string KeyOf(const HostKinds& kinds, const cost::Replica& replica) {
  std::vector<Group> sites;
  std::string key = absl::StrCat(replica.sequences, "+", replica.waiting, ";");
  for (const cost::Stage& stage : replica.stages) {
    sites.push_back(stage.sites);
    absl::StrAppend(&key, stage.layers.begin, "-", stage.layers.end, "*", stage.share.threads, "/",
                    stage.share.of_a_core, "/", stage.share.sets, "/", stage.share.together, ";");
  }
  return key + kinds.KeyOf(sites);
}

// The replicas of a plan, with what is the same for all of them found once.
class PlanReplicas {
 public:
  PlanReplicas(const topology::Machine& machine, const topology::Topology& topology,
               const model::ModelConfig& model, const Plan& plan, const cost::Workload& workload)
      : topology_(topology),
        model_(model),
        plan_(plan),
        workload_(workload),
        kind_(machine.devices.front().kind),
        sites_(SitesOfRanks(machine)) {
    std::vector<int32_t> busy;
    for (const RankPlan& rank : plan.ranks) {
      if (Asked(rank.dp_rank) > 0) busy.push_back(rank.rank);
    }
    on_node_ = RanksOfNodes(machine, busy);
  }

  // Requests at once that a replica has.
  int64_t Asked(int32_t dp_rank) const {
    return SequencesOfReplica(workload_.concurrency, plan_.layout.dp_size, dp_rank);
  }

  cost::Replica Of(int32_t dp_rank) const {
    const Layout& layout = plan_.layout;
    const int64_t asked = Asked(dp_rank);
    const int64_t tokens = workload_.prompt_tokens + workload_.output_tokens;
    const int64_t each = MostHeldPages(tokens, model_.LargestWindow(plan_.context_length),
                                       plan_.max_num_batched_tokens, plan_.page_size);
    const int64_t most =
        std::min<int64_t>(plan_.max_num_seqs, std::max<int64_t>(1, plan_.pages / each));
    cost::Replica replica;
    replica.sequences = static_cast<int32_t>(std::clamp<int64_t>(asked, 1, most));
    replica.waiting = static_cast<int32_t>(std::max<int64_t>(asked - replica.sequences, 0));
    replica.micro_batches = std::min(plan_.micro_batches, replica.sequences);
    replica.max_micro_batch_rows = plan_.max_micro_batch_rows;
    replica.prompt_pieces = PromptPieces(layout.pp_size);
    replica.activations = kernels::ActivationDType(kind_, model_.dtype);
    replica.hops = plan_.hop_dtype;
    replica.sums = SumDType(replica.activations, plan_.deterministic);
    replica.sums_by_hosts = SumsByHosts(kind_, plan_.deterministic, layout.tp_size);
    replica.kv_bytes_per_value = KvBytesPerValue(plan_.kv_dtype, model_.head_dim);
    for (int32_t pp_rank = 0; pp_rank < layout.pp_size; ++pp_rank) {
      cost::Stage& stage = replica.stages.emplace_back();
      for (int32_t tp_rank = 0; tp_rank < layout.tp_size; ++tp_rank) {
        const RankPlan& rank = plan_.At(dp_rank, pp_rank, tp_rank);
        const cost::Site& site = stage.sites.emplace_back(sites_[rank.rank]);
        stage.layers = rank.layers;
        if (kind_ == DeviceKind::kCuda) continue;
        const int32_t ranks = on_node_[site.host];
        stage.share = cost::ShareOfCores(
            topology_.hosts[site.host].cores, rank.threads, ranks,
            cost::ActiveRanks(ranks, layout.tp_size, layout.pp_size, replica.sequences));
      }
    }
    return replica;
  }

 private:
  const topology::Topology& topology_;
  const model::ModelConfig& model_;
  const Plan& plan_;
  const cost::Workload& workload_;
  const DeviceKind kind_;
  const std::vector<cost::Site> sites_;  // by rank
  std::vector<int32_t> on_node_;         // ranks that have something to do
};

}  // namespace

cost::Replica ReplicaOfPlan(const topology::Machine& machine, const topology::Topology& topology,
                            const model::ModelConfig& model, const Plan& plan, int32_t dp_rank,
                            const cost::Workload& workload) {
  return PlanReplicas(machine, topology, model, plan, workload).Of(dp_rank);
}

absl::StatusOr<Standing> PredictPlan(const topology::Machine& machine,
                                     const topology::Topology& topology, const HostKinds& kinds,
                                     const model::ModelConfig& model, const Plan& plan,
                                     const cost::Workload& workload) {
  Standing standing{.layout = plan.layout,
                    .idle_ranks = static_cast<int32_t>(plan.idle_ranks.size())};
  const PlanReplicas replicas(machine, topology, model, plan, workload);
  std::map<std::string, cost::ReplicaCost> known;
  for (int32_t dp_rank = 0; dp_rank < plan.layout.dp_size; ++dp_rank) {
    if (replicas.Asked(dp_rank) == 0) break;  // it idles, and all behind it
    const cost::Replica replica = replicas.Of(dp_rank);
    const std::string key = KeyOf(kinds, replica);
    auto found = known.find(key);
    if (found == known.end()) {
      SKEIN_ASSIGN_OR_RETURN(cost::ReplicaCost anew,
                             cost::PredictReplica(topology, model, replica, workload));
      found = known.emplace(key, anew).first;
    }
    const cost::ReplicaCost& cost = found->second;
    standing.output_tokens_per_s += cost.output_tokens_per_s;
    const absl::Duration ttft = std::max(standing.cost.ttft, cost.ttft);
    if (dp_rank == 0 || cost.tpot > standing.cost.tpot) standing.cost = cost;
    standing.cost.ttft = ttft;
    for (const cost::Stage& stage : replica.stages) {
      standing.leaves_island |= !IsIsland(topology, stage.sites);
    }
  }
  return standing;
}

absl::StatusOr<absl::Duration> PredictStep(const topology::Machine& machine,
                                           const topology::Topology& topology,
                                           const model::ModelConfig& model, const Plan& plan,
                                           int32_t dp_rank, const StepMeans& means) {
  const auto longest = static_cast<double>(plan.context_length);
  constexpr double kRounded = 0.5;  // means are
  if (means.decodes + means.prompts > plan.max_num_seqs + kRounded ||
      means.decodes + means.prompt_rows > plan.max_num_batched_tokens + kRounded ||
      means.context > longest || means.prompt_context > longest) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the plan is of no ", means.decodes, " sequences at ", means.context, " tokens with ",
        means.prompt_rows, " rows of ", means.prompts, " prompts at ", means.prompt_context));
  }
  const auto prompts = static_cast<int64_t>(std::ceil(means.prompts));
  const auto step = [&](int64_t decodes) -> absl::StatusOr<absl::Duration> {
    const int64_t sequences = std::max<int64_t>(1, decodes + prompts);
    // All stages work on a prompt's pieces at once.
    const int64_t busy =
        prompts == 0 ? sequences : std::max<int64_t>(sequences, plan.layout.pp_size);
    cost::Replica replica = ReplicaOfPlan(machine, topology, model, plan, dp_rank,
                                          {.prompt_tokens = 1,  // whatever pages they have
                                           .output_tokens = 0,
                                           .concurrency = busy * plan.layout.dp_size});
    if (prompts == 0) {
      return cost::DecodeStepTime(topology, model, replica, std::llround(means.context));
    }
    replica.sequences = static_cast<int32_t>(std::min<int64_t>(replica.sequences, sequences));
    replica.micro_batches = std::min(replica.micro_batches, replica.sequences);
    const int64_t room = plan.max_num_batched_tokens - decodes;
    const cost::Batch rows = {.decodes = decodes,
                              .context = std::llround(means.context),
                              .prompt_rows = std::max<int64_t>(
                                  1, std::min<int64_t>(std::llround(means.prompt_rows), room)),
                              .prompts = means.prompts,
                              .prompt_context = std::llround(means.prompt_context),
                              .outputs = decodes + std::llround(means.outputs)};
    // One stage has no pipeline to fill.
    const bool fills = plan.layout.pp_size > 1;
    absl::Duration time;
    for (const auto& [before, share] :
         {std::pair{cost::Before::kNothing, fills ? means.behind_nothing : 0},
          {cost::Before::kDecodes, fills ? means.behind_decodes : 0},
          {cost::Before::kAlike, fills ? 1 - means.behind_nothing - means.behind_decodes : 1.0}}) {
      if (share < 1e-6) continue;
      SKEIN_ASSIGN_OR_RETURN(const absl::Duration of,
                             cost::StepTime(topology, model, replica, rows, before));
      time += share * of;
    }
    return time;
  };
  const double least = prompts == 0 ? 1 : 0;
  const auto whole = static_cast<int64_t>(std::max(least, std::floor(means.decodes)));
  SKEIN_ASSIGN_OR_RETURN(const absl::Duration at_least, step(whole));
  const double more = means.decodes - static_cast<double>(whole);
  if (more <= 0) return at_least;
  SKEIN_ASSIGN_OR_RETURN(const absl::Duration at_most, step(whole + 1));
  return at_least + (at_most - at_least) * more;
}

Evidence EvidenceOf(const topology::Topology& topology) {
  Evidence evidence{.measured = true};
  const auto count = [&](const topology::DeviceRates& rates) {
    evidence.measured &= rates.origin == topology::Origin::kMeasured;
    evidence.spread = std::max(evidence.spread, rates.spread);
  };
  for (const topology::Host& host : topology.hosts) {
    if (host.interconnect.gpus.empty()) count(host.core_rates);
    for (const topology::Gpu& gpu : host.interconnect.gpus) count(gpu.rates);
  }
  if (topology.hosts.size() > 1) {
    evidence.measured &= topology.fabric.link.origin == topology::Origin::kMeasured;
  }
  if (!evidence.measured) evidence.spread = 0;
  return evidence;
}

Prediction PredictionOf(const topology::Topology& topology, const Standing& standing,
                        const cost::Workload& workload) {
  const Evidence evidence = EvidenceOf(topology);
  return {.prompt_tokens = workload.prompt_tokens,
          .output_tokens = workload.output_tokens,
          .concurrency = workload.concurrency,
          .ttft = standing.cost.ttft,
          .tpot = standing.cost.tpot,
          .output_tokens_per_s = standing.output_tokens_per_s,
          .measured = evidence.measured,
          .spread = evidence.spread};
}

}  // namespace skein::plan

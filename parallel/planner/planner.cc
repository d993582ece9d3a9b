#include "parallel/planner/planner.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "kernels/ops/sizes.h"
#include "parallel/plan/shard.h"
#include "parallel/planner/admission.h"
#include "parallel/planner/candidate.h"
#include "parallel/planner/defaults.h"
#include "parallel/planner/device_rules.h"
#include "parallel/planner/host_kinds.h"
#include "parallel/planner/job_placement.h"
#include "parallel/planner/judge_layouts.h"
#include "parallel/planner/predict_plan.h"

namespace skein::plan {
namespace {

constexpr size_t kNamedLayouts = 3;  // that an error names

absl::Status CheckMachine(const topology::Machine& machine) {
  if (machine.devices.empty() || machine.devices.size() > kMaxWays) {
    return absl::InvalidArgumentError(absl::StrCat("a job of ", machine.devices.size(),
                                                   " ranks cannot be: 1 to ", kMaxWays, " can"));
  }
  for (const topology::Device& device : machine.devices) {
    if (device.node < 0 || device.node >= static_cast<int32_t>(machine.nodes.size())) {
      return absl::InvalidArgumentError(absl::StrCat("a device is on node ", device.node,
                                                     " of a machine with ", machine.nodes.size(),
                                                     " nodes"));
    }
    if (device.kind != machine.devices.front().kind) {
      return absl::InvalidArgumentError("the ranks of a job compute on devices of one kind");
    }
  }
  for (const topology::Node& node : machine.nodes) {
    if (node.cores < 1 || node.memory_bytes < 0) {
      return absl::InvalidArgumentError(absl::StrCat("node ", node.host, " has ", node.cores,
                                                     " cores and ", node.memory_bytes,
                                                     " bytes of memory"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckConstraints(const ModelFacts& model, const Constraints& constraints) {
  if (constraints.context_length < 0 ||
      constraints.context_length > model.config.max_position_embeddings) {
    return absl::InvalidArgumentError(
        absl::StrCat("a context of ", constraints.context_length, " tokens cannot be: ", model.name,
                     " takes 1 to ", model.config.max_position_embeddings));
  }
  if (constraints.max_num_seqs < 0 || constraints.max_num_seqs > kMaxNumSeqs) {
    return absl::InvalidArgumentError(absl::StrCat(
        constraints.max_num_seqs, " sequences at once cannot be: 1 to ", kMaxNumSeqs, " can"));
  }
  const KvMemory& kv = constraints.kv_memory;
  if (!(kv.fraction >= 0 && kv.fraction <= 1) || kv.bytes_per_rank < 0 ||
      kv.bytes_per_rank > kMaxRankBytes || (kv.fraction > 0 && kv.bytes_per_rank > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a KV memory of ", kv.fraction, " of a node and ", kv.bytes_per_rank,
                     " bytes per rank cannot be: it is one of a fraction and bytes"));
  }
  if (constraints.swap_memory_bytes < 0 || constraints.swap_memory_bytes > kMaxRankBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a swap memory of ", constraints.swap_memory_bytes, " bytes cannot be"));
  }
  if (constraints.max_num_batched_tokens < 0 ||
      constraints.max_num_batched_tokens > kMaxBatchedTokens ||
      (constraints.max_num_batched_tokens > 0 &&
       constraints.max_num_batched_tokens < constraints.max_num_seqs)) {
    return absl::InvalidArgumentError(
        absl::StrCat("steps of ", constraints.max_num_batched_tokens, " tokens cannot be: 1 to ",
                     kMaxBatchedTokens, " can, and each of ",
                     FormatCount(constraints.max_num_seqs, "sequence"), " needs one"));
  }
  const cost::Workload& work = constraints.goal.workload;
  constexpr int64_t kMost = int64_t{1} << 30;
  if (work.prompt_tokens < 1 || work.output_tokens < 1 || work.concurrency < 0 ||
      std::max({work.prompt_tokens, work.output_tokens, work.concurrency}) > kMost) {
    return absl::InvalidArgumentError(absl::StrCat(work.concurrency, " requests at once, of ",
                                                   work.prompt_tokens, " and ", work.output_tokens,
                                                   " tokens, cannot be"));
  }
  return absl::OkStatus();
}

// "123 tokens/s": what a layout is ranked by.
std::string Merit(const Goal& goal, const cost::Workload& workload, const Standing& standing) {
  switch (goal.objective) {
    case Objective::kThroughput:
      return absl::StrFormat("%.4g tokens/s", standing.output_tokens_per_s);
    case Objective::kLatency:
      return absl::StrFormat("%.4g ms an answer",
                             absl::ToDoubleMilliseconds(standing.AnswerTime(workload)));
  }
  return "";
}

std::string WhyItLost(const Goal& goal, const cost::Workload& workload, const Standing& loser,
                      const Standing& best) {
  const std::string merits =
      absl::StrCat(Merit(goal, workload, loser), ", where ", best.layout.ToString(), " has ",
                   Merit(goal, workload, best));
  const std::string why = WhyItIsBehind(goal, workload, loser, best);
  return why.empty() ? merits : absl::StrCat(merits, ": ", why);
}

// Why the request cannot be whatever the machine, a sentence part each.
std::vector<std::string> WhatDoesNotDivide(const Job& job, const LayoutRequest& request) {
  std::vector<std::string> reasons;
  const auto note = [&](const absl::Status& refusal) {
    if (!refusal.ok()) reasons.push_back(std::string(refusal.message()));
  };
  const int32_t groups = request.ep_size.value_or(1);
  if (request.tp_size || groups > 1) {
    note(CheckTensorParallel(job.model, request.tp_size.value_or(groups), groups));
  }
  if (request.pp_size) note(CheckPipelineParallel(job.model, *request.pp_size));
  const int64_t product = request.ranks();
  const bool all_given = request.tp_size && request.pp_size && request.dp_size;
  if (all_given ? product != job.ranks() : product > job.ranks()) {
    reasons.push_back(absl::StrCat(request.ToString(), " needs ", all_given ? "" : "at least ",
                                   product, " ranks; the job has ", job.ranks()));
  }
  return reasons;
}

// The distance of a layout from what was asked: each doubling of a part counts one.
double Distance(const LayoutRequest& request, const Layout& layout) {
  const auto part = [](const std::optional<int32_t>& asked, int32_t given) {
    return asked ? std::abs(std::log2(static_cast<double>(*asked) / given)) : 0.0;
  };
  return part(request.tp_size, layout.tp_size) + part(request.pp_size, layout.pp_size) +
         part(request.dp_size, layout.dp_size);
}

// Those that work, best first.
std::vector<const Candidate*> RankCandidates(const Job& job, const Goal& goal,
                                             const std::vector<Candidate>& candidates) {
  std::vector<const Candidate*> works;
  std::vector<Standing> standings;
  for (const Candidate& candidate : candidates) {
    if (!candidate.refusal.ok()) continue;
    works.push_back(&candidate);
    standings.push_back(candidate.standing);
  }
  std::vector<const Candidate*> ranked;
  for (const size_t place : RankStandings(goal, job.workload, standings)) {
    ranked.push_back(works[place]);
  }
  return ranked;
}

// The working layouts nearest to the request, by name.
std::vector<std::string> NearestLayouts(const std::vector<const Candidate*>& ranked,
                                        const LayoutRequest& request) {
  std::vector<Layout> works;  // best first, which breaks ties below
  for (const Candidate* const c : ranked) {
    const bool may_cross = request.tp_size && *request.tp_size == c->layout.tp_size;
    if (c->crossing.empty() || may_cross) works.push_back(c->layout);
  }
  std::stable_sort(works.begin(), works.end(), [&](const Layout& a, const Layout& b) {
    return Distance(request, a) < Distance(request, b);
  });
  if (works.size() > kNamedLayouts) works.resize(kNamedLayouts);
  std::vector<std::string> names;
  for (const Layout& layout : works) names.push_back(layout.ToString());
  return names;
}

// Why those of the request's layouts that come nearest to fitting do not.
std::vector<std::string> WhyNoneFits(const std::vector<Candidate>& candidates,
                                     const LayoutRequest& request) {
  std::vector<const Candidate*> asked;
  for (const Candidate& c : candidates) {
    if (request.Allows(c.layout)) asked.push_back(&c);
  }
  // A layout that the numbers rule out (its memory is unknown) says least.
  const auto ratio = [](const Candidate* c) {
    return c->memory_ratio > 0 ? c->memory_ratio : HUGE_VAL;
  };
  std::stable_sort(asked.begin(), asked.end(),
                   [&](const Candidate* a, const Candidate* b) { return ratio(a) < ratio(b); });
  if (asked.size() > kNamedLayouts) asked.resize(kNamedLayouts);
  std::vector<std::string> reasons;
  for (const Candidate* c : asked) {
    reasons.push_back(absl::StrCat(c->layout.ToString(), ": ",
                                   std::string(CheckCandidate(*c, request).message())));
  }
  return reasons;
}

absl::Status Refuse(const Job& job, const ModelFacts& model, const LayoutRequest& request,
                    const std::vector<Candidate>& candidates,
                    const std::vector<const Candidate*>& ranked) {
  std::vector<std::string> reasons = WhatDoesNotDivide(job, request);
  if (reasons.empty()) reasons = WhyNoneFits(candidates, request);
  const std::string why = absl::StrCat("\n  ", absl::StrJoin(reasons, "\n  "));
  const std::string ranks = FormatCount(job.ranks(), "rank");
  if (request == LayoutRequest{}) {
    return absl::FailedPreconditionError(
        absl::StrCat("no layout works for ", model.name, " on ", ranks, ":", why));
  }
  const std::vector<std::string> nearest = NearestLayouts(ranked, request);
  return absl::FailedPreconditionError(absl::StrCat(
      "layout ", request.ToString(), " does not work for ", model.name, " on ", ranks, ":", why,
      nearest.empty() ? "\nNo other layout of these ranks works either"
                      : absl::StrCat("\nNearest that work: ", absl::StrJoin(nearest, "; "))));
}

// One sentence for all nodes with the same cores and ranks.
void AddThreadReasons(const Job& job, const Candidate& of, std::vector<std::string>& reasons) {
  const std::vector<int32_t> ranks = RanksOfNodes(job.machine, of.ranks);
  std::map<std::pair<int32_t, int32_t>, std::vector<size_t>> alike;  // (cores, ranks) to nodes
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] > 0) alike[{job.machine.nodes[i].cores, ranks[i]}].push_back(i);
  }
  for (const auto& [key, nodes] : alike) {
    const auto [cores, count] = key;
    reasons.push_back(absl::StrCat(
        "Node ", job.machine.nodes[nodes.front()].host,
        nodes.size() > 1
            ? absl::StrCat(" (and ", FormatCount(nodes.size() - 1, "node"), " like it)")
            : "",
        " has ", FormatCount(cores, "core"), " for ", FormatCount(count, "rank"), ": ",
        FormatCount(std::max(1, cores / count), "thread"), " each."));
  }
}

// Why no layout like `best` with fewer stages was taken; "" where there is none.
std::string WhyStages(const Candidate& best, const std::vector<Candidate>& candidates) {
  for (const Candidate& c : candidates) {
    if (c.layout.tp_size == best.layout.tp_size && c.layout.pp_size < best.layout.pp_size &&
        c.crossing.empty() && !c.refusal.ok()) {
      return absl::StrCat("pp=", best.layout.pp_size, ": memory asks for stages. With ",
                          c.layout.ToString(), " ", std::string(c.refusal.message()), ".");
    }
  }
  return "";
}

// "Ranks 2 and 3 idle: ...", where some do.
std::string WhySomeIdle(const Candidate& chosen, const Constraints& constraints,
                        const cost::Workload& workload, const std::vector<const Candidate*>& ranked,
                        const std::vector<Candidate>& candidates) {
  const std::vector<int32_t>& idle = chosen.plan.idle_ranks;
  if (idle.empty()) return "";
  const int32_t size = chosen.plan.job_size();
  const std::string who =
      absl::StrCat(idle.size() == 1 ? "Rank " : "Ranks ", absl::StrJoin(idle, ", "),
                   idle.size() == 1 ? " idles: " : " idle: ");
  for (const Candidate* const other : ranked) {
    if (!other->plan.idle_ranks.empty() || !CheckCandidate(*other, constraints.layout).ok())
      continue;
    return absl::StrCat(
        who, "of all ", size, " the best would be ", other->layout.ToString(), ", with ",
        WhyItLost(constraints.goal, workload, other->standing, chosen.standing), ".");
  }
  for (const Candidate& other : candidates) {
    if (other.crossing.empty() || other.layout.ranks() < size ||
        !constraints.layout.Allows(other.layout)) {
      continue;
    }
    return absl::StrCat(who, other.layout.ToString(),
                        " has work for all, but its shards are spread over nodes ", other.crossing,
                        "; ask for all three parts of it if you want that.");
  }
  return absl::StrCat(who, "no layout of all ", size, " works.");
}

std::vector<std::string> WhyThisLayout(const Candidate& chosen, const Constraints& constraints,
                                       const std::vector<Candidate>& candidates) {
  const LayoutRequest& request = constraints.layout;
  const Layout& layout = chosen.layout;
  std::vector<std::string> reasons;
  if (request != LayoutRequest{}) reasons.push_back(request.ToString() + " was asked for.");
  reasons.push_back(absl::StrCat("Ranked by ", RankedBy(constraints.goal, chosen.standing), "."));
  if (!request.pp_size && layout.pp_size > 1) {
    std::string why = WhyStages(chosen, candidates);
    if (!why.empty()) reasons.push_back(std::move(why));
  }
  if (!chosen.crossing.empty()) {
    reasons.push_back(absl::StrCat("Shards of a stage are spread over nodes ", chosen.crossing,
                                   ", as asked: every layer's sums cross the network."));
  }
  return reasons;
}

// Refuses what would round by the layout; and models whose sums GPUs cannot add in blocks.
absl::Status CheckDeterministic(const Job& job) {
  if (!job.deterministic) return absl::OkStatus();
  if (job.hop_dtype != kernels::ActivationDType(job.device, job.model.dtype)) {
    return absl::FailedPreconditionError(
        absl::StrCat("--deterministic: --hop-dtype=", std::string(HopDTypeName(job.hop_dtype)),
                     " rounds where a pipeline is cut; leave it out"));
  }
  return CheckColumns(job.model, job.device);
}

absl::Status ChooseDTypes(const Constraints& constraints, Job& job) {
  SKEIN_ASSIGN_OR_RETURN(job.kv_dtype,
                         ChooseKvDType(constraints.kv_dtype, job.device, job.model.dtype));
  const DType activations = kernels::ActivationDType(job.device, job.model.dtype);
  job.hop_dtype = constraints.hop_dtype.value_or(activations);
  if (job.device == DeviceKind::kCpu || job.hop_dtype == activations) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("--hop-dtype=", std::string(HopDTypeName(job.hop_dtype)),
                   ": GPUs send activations in ", std::string(HopDTypeName(activations)),
                   ", which GPUs compute this model in: its weights are ",
                   std::string(DTypeName(job.model.dtype))));
}

// `layout_reasons` say why this layout, or why not.
Plan FinishPlan(const Job& job, const ModelFacts& model, const Candidate& candidate,
                std::vector<std::string> layout_reasons) {
  Plan plan = candidate.plan;
  plan.model_name = model.name;
  plan.model_path = model.path;
  plan.model_identity = model.identity;
  plan.reasons = std::move(layout_reasons);
  plan.prediction = PredictionOf(job.topology, candidate.standing, job.workload);
  if (!SumsAgreeAcrossLayouts(plan.layout.tp_size)) {
    plan.reasons.push_back(
        absl::StrCat("tp=", plan.layout.tp_size,
                     " sums in its own order: answers may differ in the last bits "
                     "from those of tp=1, 2, 4 and 8."));
  }
  if (plan.layout.pp_size > 1 &&
      plan.hop_dtype != kernels::ActivationDType(job.device, job.model.dtype)) {
    plan.reasons.push_back(absl::StrCat(
        "Activations are rounded to ", std::string(HopDTypeName(plan.hop_dtype)),
        " between stages: answers may differ in the last bits from those of other pipelines."));
  }
  if (!candidate.limit_reason.empty()) plan.reasons.push_back(candidate.limit_reason);
  if (!candidate.split_reason.empty()) plan.reasons.push_back(candidate.split_reason);
  if (plan.layout.pp_size > 1) plan.reasons.push_back(candidate.micro_batch_reason);
  AddThreadReasons(job, candidate, plan.reasons);
  plan.reasons.push_back(candidate.memory_reason);
  plan.reasons.push_back(candidate.cache_reason);
  return plan;
}

}  // namespace

absl::StatusOr<Planning> PlanJob(const topology::Machine& machine, const ModelFacts& model,
                                 const Constraints& constraints) {
  SKEIN_RETURN_IF_ERROR(CheckMachine(machine));
  SKEIN_RETURN_IF_ERROR(CheckConstraints(model, constraints));
  const LayoutRequest& request = constraints.layout;
  topology::Topology topology = topology::TopologyOf(machine);
  const int folded = FoldAlikeHosts(topology);
  const HostKinds kinds(topology);
  Job job{machine, topology, kinds, model.config};
  job.device = machine.devices.front().kind;
  job.page_size = kernels::PageTokens(job.device);
  job.context_length = constraints.context_length > 0 ? constraints.context_length
                                                      : model.config.max_position_embeddings;
  const Defaults defaults = DefaultsOf(job.device);
  job.micro_batch_rows = defaults.micro_batch_rows;
  job.max_num_seqs = constraints.max_num_seqs;
  if (job.max_num_seqs == 0) {
    job.max_num_seqs = constraints.max_num_batched_tokens > 0
                           ? static_cast<int32_t>(std::min<int64_t>(
                                 defaults.max_num_seqs, constraints.max_num_batched_tokens))
                           : defaults.max_num_seqs;
  }
  job.kv_memory = constraints.kv_memory;
  SKEIN_RETURN_IF_ERROR(ChooseDTypes(constraints, job));
  job.deterministic = constraints.deterministic;
  job.exact = constraints.exact;
  SKEIN_RETURN_IF_ERROR(CheckDeterministic(job));
  job.swap_memory_bytes = constraints.swap_memory_bytes;
  job.max_num_batched_tokens = constraints.max_num_batched_tokens;
  job.workload = WorkloadOf(constraints.goal, job.device, job.context_length);
  if (constraints.max_num_seqs == 0) job.tpot_limit = constraints.goal.tpot_limit;

  JudgedLayouts judged = JudgeLayouts(job, request);
  std::vector<Candidate>& candidates = judged.candidates;
  KeepSumsOnNodes(job, request, candidates);
  UseRanks(job, constraints, EvidenceOf(topology), candidates);
  const std::vector<const Candidate*> ranked = RankCandidates(job, constraints.goal, candidates);
  Planning planning{.pruned = std::move(judged.pruned)};
  if (folded > 0) planning.pruned += (planning.pruned.empty() ? "" : " ") + FoldedText(folded);
  const Candidate* best = nullptr;
  for (const Candidate* const candidate : ranked) {
    const absl::Status can_be = CheckCandidate(*candidate, request);
    if (!can_be.ok()) {
      planning.rejected.push_back({candidate->layout, std::string(can_be.message())});
      continue;
    }
    if (best == nullptr) {
      best = candidate;
      std::vector<std::string> why = WhyThisLayout(*candidate, constraints, candidates);
      std::string idle = WhySomeIdle(*candidate, constraints, job.workload, ranked, candidates);
      if (!idle.empty()) why.push_back(std::move(idle));
      planning.plans.push_back(FinishPlan(job, model, *candidate, std::move(why)));
      continue;
    }
    std::string why_not =
        WhyItLost(constraints.goal, job.workload, candidate->standing, best->standing);
    planning.plans.push_back(
        FinishPlan(job, model, *candidate, {absl::StrCat("Not the best: ", why_not, ".")}));
    planning.rejected.push_back({candidate->layout, std::move(why_not)});
  }
  if (best == nullptr) return Refuse(job, model, request, candidates, ranked);
  for (const Candidate& candidate : candidates) {
    if (candidate.refusal.ok()) continue;
    const absl::Status can_not = CheckCandidate(candidate, request);
    planning.rejected.push_back({candidate.layout, std::string(can_not.message())});
  }
  return planning;
}

}  // namespace skein::plan

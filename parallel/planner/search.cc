#include "parallel/planner/search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "kernels/ops/sizes.h"
#include "parallel/cost/device_cost.h"
#include "parallel/plan/shard.h"
#include "parallel/planner/defaults.h"
#include "parallel/planner/device_rules.h"
#include "parallel/planner/host_kinds.h"
#include "parallel/planner/memory.h"
#include "parallel/planner/pipeline_depths.h"
#include "parallel/planner/placement.h"
#include "parallel/planner/placer.h"
#include "parallel/planner/replica_search.h"

namespace skein::plan {
namespace {

using topology::Topology;

// Any number of so few replicas is looked at.
constexpr int32_t kFewReplicas = 16;

absl::Status CheckTask(const model::ModelConfig& model, const SearchTask& task) {
  const cost::Workload& work = task.workload;
  constexpr int64_t kMost = int64_t{1} << 30;
  for (const auto& [value, what] : {std::pair(work.prompt_tokens, "tokens of a prompt"),
                                    std::pair(work.output_tokens, "tokens of an answer"),
                                    std::pair(work.concurrency, "requests at once")}) {
    if (value < 1 || value > kMost) {
      return absl::InvalidArgumentError(absl::StrCat(value, " ", what, " cannot be"));
    }
  }
  const int64_t tokens = work.prompt_tokens + work.output_tokens;
  const int64_t longest =
      task.context_length > 0 ? task.context_length : model.max_position_embeddings;
  if (tokens > longest) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompts of ", work.prompt_tokens, " and answers of ", work.output_tokens,
                     " tokens do not fit into a context of ", longest));
  }
  if (task.context_length < 0 || task.context_length > model.max_position_embeddings) {
    return absl::InvalidArgumentError(absl::StrCat("a context of ", task.context_length,
                                                   " tokens cannot be: the model takes 1 to ",
                                                   model.max_position_embeddings));
  }
  if (task.max_num_seqs < 0 || task.max_num_seqs > kMaxNumSeqs || task.core_ranks < 0 ||
      task.core_ranks > kMaxWays) {
    return absl::InvalidArgumentError("more sequences or ranks than can be");
  }
  return absl::OkStatus();
}

class Search {
 public:
  Search(const Topology& topology, const model::ModelConfig& model, const SearchTask& task,
         const ReplicaTask& replica_task)
      : topology_(topology),
        model_(model),
        task_(task),
        replica_task_(replica_task),
        placer_(topology),
        replicas_(replica_task) {
    const auto hosts = static_cast<int32_t>(topology.hosts.size());
    if (replica_task_.device == DeviceKind::kCpu) {
      core_ranks_ = task.core_ranks;
      for (const topology::Host& host : topology.hosts) {
        if (task.core_ranks > 0) break;
        core_ranks_ = core_ranks_ == 0 ? host.cores : std::min(core_ranks_, host.cores);
      }
    }
    for (int32_t host = 0; host < hosts; ++host) {
      const auto sites = static_cast<int32_t>(SitesOf(topology, host, core_ranks_).size());
      largest_host_ = std::max(largest_host_, sites);
      sites_ += sites;
    }
  }

  SearchResult Run() {
    // Shards over hosts must be asked for: each layer's sums would cross the network.
    const int32_t most = task_.layout.tp_size ? sites_ : largest_host_;
    for (int32_t tp = 1; tp <= most; ++tp) {
      if (task_.layout.tp_size && *task_.layout.tp_size != tp) continue;
      absl::Status can_be = CheckTensorParallel(model_, tp, ep_size());
      if (can_be.ok() && task_.deterministic && !SumsAgreeAcrossLayouts(tp)) {
        can_be = absl::FailedPreconditionError(
            absl::StrCat("tp=", tp,
                         " sums in an order of its own, and --deterministic asks for "
                         "that of 1, 2, 4 and 8"));
      }
      const bool tensor_is_asked =
          task_.layout.tp_size || (task_.layout.pp_size && task_.layout.dp_size);
      if (!tensor_is_asked && SumsByHosts(replica_task_.device, task_.deterministic, tp)) {
        can_be.Update(SumsByHostsRefusal(tp));
      }
      if (!can_be.ok()) {
        Reject({tp, 1, sites_ / tp, ep_size()}, can_be);
        continue;
      }
      SearchPipelines(tp, placer_.TensorGroups(SitesOfHosts(topology_, core_ranks_), tp));
    }
    Rank();
    if (between_) {
      absl::StrAppend(&result_.pruned, result_.pruned.empty() ? "" : " ", "Of more than ",
                      kFewReplicas, " replicas only some numbers were looked at.");
    }
    return std::move(result_);
  }

 private:
  // Experts are split apart only where it is asked for.
  int32_t ep_size() const { return task_.layout.ep_size.value_or(1); }

  void Reject(const Layout& layout, const absl::Status& why) {
    result_.rejected.push_back({layout, std::string(why.message())});
  }

  void SearchPipelines(int32_t tp, const std::vector<Group>& groups) {
    const auto most = static_cast<int32_t>(
        std::min<int64_t>(static_cast<int64_t>(groups.size()), model_.num_layers));
    int32_t fits = 0;  // the fewest stages that do
    for (int32_t pp = 1; pp <= most; ++pp) {
      if (task_.layout.pp_size && *task_.layout.pp_size != pp) continue;
      if (fits > 0 && pp > MostStages(fits) && !task_.layout.pp_size) {
        result_.pruned = absl::StrCat("Pipelines of more than ", kFewStages,
                                      " stages were looked at only up to ", kDeeper,
                                      " times those that memory asks for.");
        return;
      }
      if (SearchReplicas(tp, Spread(placer_.Replicas(groups, pp)), pp) && fits == 0) fits = pp;
    }
  }

  // Ranks of a host share its cores.
  std::vector<std::vector<Group>> Spread(std::vector<std::vector<Group>> placed) const {
    if (replica_task_.device == DeviceKind::kCuda) return placed;
    std::vector<int32_t> hosts;
    for (const auto& replica : placed) hosts.push_back(replica.front().front().host);
    std::vector<std::vector<Group>> spread;
    for (const size_t i : TakingTurns(hosts)) spread.push_back(std::move(placed[i]));
    return spread;
  }

  // Whether any number of replicas works.
  bool SearchReplicas(int32_t tp, const std::vector<std::vector<Group>>& placed, int32_t pp) {
    auto most = static_cast<int32_t>(placed.size());
    // One more than there are requests would idle; who asks for it gets it.
    if (!task_.layout.dp_size) most = std::min<int64_t>(most, task_.workload.concurrency);
    if (most == 0) return false;
    if (task_.layout.dp_size) {
      if (*task_.layout.dp_size > most) {
        Reject({tp, pp, *task_.layout.dp_size, ep_size()},
               absl::FailedPreconditionError(absl::StrCat("only ", FormatCount(most, "replica"),
                                                          " of these can be at once")));
        return false;
      }
      most = *task_.layout.dp_size;
    }
    // More replicas serve no less, where each has devices of its own; cores and unlike cards may.
    const bool only_all =
        task_.layout.dp_size || (replica_task_.device == DeviceKind::kCuda && CardsAreAlike());
    bool works = false;
    for (int32_t dp = only_all ? most : 1; dp <= most; dp = NextOf(dp, most)) {
      absl::StatusOr<Choice> choice = Judge({tp, pp, dp, ep_size()}, placed);
      if (!choice.ok() && dp == most) Reject({tp, pp, dp, ep_size()}, choice.status());
      for (int32_t fewer = dp - 1; only_all && !task_.layout.dp_size && fewer > 0 &&
                                   absl::IsResourceExhausted(choice.status());
           --fewer) {
        choice = Judge({tp, pp, fewer, ep_size()}, placed);
      }
      if (choice.ok()) {
        works = true;
        result_.choices.push_back(*std::move(choice));
      }
    }
    return works;
  }

  // Of numbers of replicas, all of some and some of many.
  int32_t NextOf(int32_t dp, int32_t most) {
    if (dp < kFewReplicas || dp == most) return dp + 1;
    const int32_t next = std::min(dp + dp / 4, most);
    between_ |= next > dp + 1;
    return next;
  }

  bool CardsAreAlike() const {
    const topology::Gpu* first = nullptr;
    for (const topology::Host& host : topology_.hosts) {
      for (const topology::Gpu& gpu : host.interconnect.gpus) {
        if (first == nullptr) first = &gpu;
        if (!cost::CardsAreAlike(gpu, *first)) return false;
      }
    }
    return true;
  }

  // Of the host that has the most ranks of the first dp replicas.
  HostShare ShareOf(const Layout& layout, const std::vector<std::vector<Group>>& placed) const {
    if (replica_task_.device == DeviceKind::kCuda) return {};
    std::map<int32_t, int32_t> of_host;
    for (int32_t i = 0; i < layout.dp_size; ++i) {
      for (const Group& group : placed[i]) {
        for (const cost::Site& site : group) ++of_host[site.host];
      }
    }
    int32_t ranks = 0;
    for (const auto& [host, count] : of_host) ranks = std::max(ranks, count);
    const int64_t sequences = std::max<int64_t>(1, task_.workload.concurrency / layout.dp_size);
    return {ranks, cost::ActiveRanks(ranks, layout.tp_size, layout.pp_size, sequences)};
  }

  // Requests at once that an unlike replica gets by its share.
  int32_t SequencesOf(double share) const {
    const double asked = static_cast<double>(task_.workload.concurrency) * share;
    return static_cast<int32_t>(std::max<int64_t>(1, std::llround(asked)));
  }
  // The same of one of `dp` that are alike.
  int32_t EvenSequencesOf(int32_t dp, int32_t i) const {
    const int64_t asked = SequencesOfReplica(task_.workload.concurrency, dp, i);
    return static_cast<int32_t>(std::max<int64_t>(1, asked));
  }

  // The first dp of the placed replicas. Requests go to each by its speed.
  absl::StatusOr<Choice> Judge(const Layout& layout,
                               const std::vector<std::vector<Group>>& placed) {
    const HostShare share = ShareOf(layout, placed);
    const int32_t dp = layout.dp_size;
    std::vector<double> speeds;
    double all = 0;
    for (int32_t i = 0; i < dp; ++i) {
      SKEIN_ASSIGN_OR_RETURN(const JudgedReplica judged,
                             replicas_.Judge(placed[i], EvenSequencesOf(dp, 0), share));
      speeds.push_back(judged.cost.output_tokens_per_s);
      all += speeds.back();
    }
    const bool alike = std::all_of(speeds.begin(), speeds.end(),
                                   [&](double speed) { return speed == speeds.front(); });
    Choice choice;
    std::map<int32_t, HostBytes> host_bytes;
    choice.layout = layout;
    choice.devices = layout.ranks();
    for (int32_t i = 0; i < dp; ++i) {
      SKEIN_ASSIGN_OR_RETURN(
          JudgedReplica judged,
          replicas_.Judge(placed[i], alike ? EvenSequencesOf(dp, i) : SequencesOf(speeds[i] / all),
                          share));
      AddHostBytes(judged, host_bytes);
      Add(std::move(judged), choice);
    }
    SKEIN_RETURN_IF_ERROR(CheckHosts(host_bytes));
    choice.within_limits = WithinLimits(task_, choice);
    return choice;
  }

  // What the processes of a host's ranks on GPUs take of it.
  struct HostBytes {
    int64_t own = 0;     // of all ranks
    int64_t shared = 0;  // once
  };
  static void AddHostBytes(const JudgedReplica& judged, std::map<int32_t, HostBytes>& host_bytes) {
    for (size_t i = 0; i < judged.memory.size(); ++i) {
      const RankMemory& memory = judged.memory[i];
      for (const cost::Site& site : judged.replica.stages[i].sites) {
        if (site.gpu < 0) continue;
        HostBytes& of = host_bytes[site.host];
        of.own += memory.process_bytes() - memory.shared_bytes;
        of.shared = std::max(of.shared, memory.shared_bytes);
      }
    }
  }
  // ResourceExhausted: fewer replicas may fit.
  absl::Status CheckHosts(const std::map<int32_t, HostBytes>& host_bytes) const {
    for (const auto& [at, of] : host_bytes) {
      const int64_t bytes = of.own + of.shared;
      const topology::Host& host = topology_.hosts[at];
      const int64_t usable = UsableBytes(host.memory_bytes);
      if (host.memory_bytes == 0 || bytes <= usable) continue;  // 0: not told
      return absl::ResourceExhaustedError(
          absl::StrCat("the ranks' processes would need ", FormatBytes(bytes), " of host ",
                       host.name, ", which has ", FormatBytes(usable), " to use"));
    }
    return absl::OkStatus();
  }

  static void Add(JudgedReplica judged, Choice& choice) {
    const bool first = choice.replicas.empty();
    choice.output_tokens_per_s += judged.cost.output_tokens_per_s;
    const absl::Duration ttft = std::max(choice.cost.ttft, judged.cost.ttft);
    if (first || judged.cost.tpot > choice.cost.tpot) choice.cost = judged.cost;
    choice.cost.ttft = ttft;
    const auto ratio = [](int64_t needed, int64_t usable) {
      return static_cast<double>(needed) / static_cast<double>(std::max<int64_t>(usable, 1));
    };
    if (first || ratio(judged.needed_bytes, judged.usable_bytes) >
                     ratio(choice.needed_bytes, choice.usable_bytes)) {
      choice.needed_bytes = judged.needed_bytes;
      choice.usable_bytes = judged.usable_bytes;
    }
    choice.bounded |= judged.bounded;
    std::vector<int64_t>& rank_bytes = choice.rank_bytes.emplace_back();
    for (size_t i = 0; i < judged.memory.size(); ++i) {
      rank_bytes.push_back(NeededBytes(judged.memory[i], judged.replica.stages[i].sites.front()));
    }
    choice.replicas.push_back(std::move(judged.replica));
  }

  void Rank() {
    std::vector<Choice>& choices = result_.choices;
    std::vector<Standing> standings;
    for (Choice& choice : choices) {
      // Replicas are alike enough.
      for (const cost::Stage& stage : choice.replicas.front().stages) {
        choice.leaves_island |= !IsIsland(topology_, stage.sites);
      }
      standings.push_back(choice);
    }
    std::vector<Choice> ranked;
    for (const size_t place : RankStandings(task_, task_.workload, standings)) {
      ranked.push_back(std::move(choices[place]));
    }
    choices = std::move(ranked);
  }

  const Topology& topology_;
  const model::ModelConfig& model_;
  const SearchTask& task_;
  const ReplicaTask replica_task_;
  Placer placer_;
  ReplicaSearch replicas_;
  int32_t core_ranks_ = 0;  // of each host, where there are no GPUs
  int32_t largest_host_ = 0;
  int32_t sites_ = 0;
  bool between_ = false;  // numbers of replicas were left out
  SearchResult result_;
};

}  // namespace

DeviceKind DeviceOf(const Topology& topology) {
  const bool gpus = std::any_of(topology.hosts.begin(), topology.hosts.end(),
                                [](const auto& host) { return !host.interconnect.gpus.empty(); });
  return gpus ? DeviceKind::kCuda : DeviceKind::kCpu;
}

absl::StatusOr<SearchResult> SearchLayouts(const Topology& topology,
                                           const model::ModelConfig& model,
                                           const SearchTask& asked) {
  SKEIN_RETURN_IF_ERROR(topology::CheckTopology(topology));
  SKEIN_RETURN_IF_ERROR(cost::CheckComplete(topology));
  const DeviceKind device = DeviceOf(topology);
  SearchTask task = asked;
  task.workload.concurrency = ConcurrencyOf(task, device);
  SKEIN_RETURN_IF_ERROR(CheckTask(model, task));
  Topology folded = topology;
  const int hosts = FoldAlikeHosts(folded);
  ReplicaTask replica{folded, model, task.workload};
  replica.device = device;
  const Defaults defaults = DefaultsOf(replica.device);
  replica.context_length = task.context();
  replica.max_num_seqs = task.max_num_seqs > 0 ? task.max_num_seqs : defaults.max_num_seqs;
  replica.max_micro_batch_rows = std::max(defaults.micro_batch_rows, replica.max_num_seqs);
  replica.activations = kernels::ActivationDType(replica.device, model.dtype);
  SKEIN_ASSIGN_OR_RETURN(replica.kv_dtype, ChooseKvDType(task.kv_dtype, device, model.dtype));
  if (task.deterministic) SKEIN_RETURN_IF_ERROR(CheckColumns(model, device));
  replica.deterministic = task.deterministic;
  replica.ep_size = task.layout.ep_size.value_or(1);
  if (task.max_num_seqs == 0) replica.tpot_limit = task.tpot_limit;
  SearchResult result = Search(folded, model, task, replica).Run();
  if (hosts > 0) result.pruned += (result.pruned.empty() ? "" : " ") + FoldedText(hosts);
  return result;
}

std::string WhyItIsBehind(const Choice& choice, const Choice& best, const SearchTask& task) {
  std::string plain = WhyItIsBehind(task, task.workload, choice, best);
  if (!plain.empty()) return plain;
  const auto sequences = [](const Choice& of) {
    int64_t all = 0;
    for (const cost::Replica& replica : of.replicas) all += replica.sequences;
    return all;
  };
  if (sequences(choice) < sequences(best)) {
    return absl::StrCat(choice.bounded ? "memory and the limit on TPOT leave " : "memory holds ",
                        FormatCount(sequences(choice), "sequence"), " at once, not ",
                        sequences(best));
  }
  if (choice.devices < best.devices) {
    const int32_t more = best.devices - choice.devices;
    return more == 1 ? "one rank more helps" : absl::StrCat(more, " ranks more help");
  }
  // Of all weights, by each rank, until all sequences have a token more.
  const auto read = [](const Choice& of) {
    return static_cast<double>(of.replicas.front().micro_batches) /
           (of.layout.tp_size * of.layout.pp_size);
  };
  if (read(choice) > read(best)) {
    return absl::StrFormat("a rank goes through %.0f%% of the weights a step, not %.0f%%",
                           100 * read(choice), 100 * read(best));
  }
  const bool tpot = choice.cost.tpot > best.cost.tpot;
  const auto time = [&](const Choice& of) {
    return FormatMilliseconds(tpot ? of.cost.tpot : of.cost.ttft);
  };
  return absl::StrCat(tpot ? "TPOT" : "TTFT", " is ", time(choice), ", not ", time(best));
}

}  // namespace skein::plan

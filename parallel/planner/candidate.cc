#include "parallel/planner/candidate.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/units.h"
#include "parallel/plan/shard.h"
#include "parallel/planner/memory.h"

namespace skein::plan {
namespace {

// As many rows as make a product's weights worth reading once, and few enough for decoding
// sequences not to wait long behind a prompt.
constexpr int32_t kMicroBatchRows = 256;
// Whole tiles of the CPU's lanes; small enough that a sequence's last page wastes little.
constexpr int64_t kPageSize = 16;
// Page ids are int32.
constexpr int64_t kMaxPages = std::numeric_limits<int32_t>::max();

// The fullest node of a layout: the one with the largest part of its usable memory taken.
struct NodeNeed {
  int32_t node = 0;
  int64_t needed_bytes = 0;
  int64_t usable_bytes = 0;

  double ratio() const {
    return static_cast<double>(needed_bytes) / std::max<int64_t>(usable_bytes, 1);
  }
  bool fits() const { return needed_bytes <= usable_bytes; }
};

// One layout of a job whose shards and stages are known to divide the model.
class Fit {
 public:
  Fit(const Job& job, const Layout& layout) : job_(job), layout_(layout) {
    for (int32_t shard = 0; shard < layout.tensor; ++shard) {
      shards_.push_back(*MakeShard(job.model, layout.tensor, shard));
    }
  }

  ReplicaLimits Limits(int64_t context_length, int32_t max_sequences) const {
    return {layout_.tensor, context_length, max_sequences, std::max(kMicroBatchRows, max_sequences),
            kPageSize};
  }

  // Of any replica.
  RankMemory Memory(int32_t stage, int32_t shard, const ReplicaLimits& limits) const {
    return MemoryOfRank(job_.model, shards_[shard],
                        StageLayers(job_.model.num_layers, layout_.pipeline, stage), limits);
  }

  NodeNeed FullestNode(const ReplicaLimits& limits) const {
    std::vector<int64_t> needed(job_.machine.nodes.size(), 0);
    for (int32_t stage = 0; stage < layout_.pipeline; ++stage) {
      for (int32_t shard = 0; shard < layout_.tensor; ++shard) {
        const int64_t bytes = Memory(stage, shard, limits).total();
        for (int32_t replica = 0; replica < layout_.data; ++replica) {
          const int32_t rank = (replica * layout_.pipeline + stage) * layout_.tensor + shard;
          needed[job_.machine.devices[rank].node] += bytes;
        }
      }
    }
    NodeNeed fullest;
    for (size_t i = 0; i < needed.size(); ++i) {
      const NodeNeed need{static_cast<int32_t>(i), needed[i],
                          UsableBytes(job_.machine.nodes[i].memory_bytes)};
      if (i == 0 || need.ratio() > fullest.ratio()) fullest = need;
    }
    return fullest;
  }

  bool Fits(int64_t context_length, int64_t max_sequences) const {
    const ReplicaLimits limits = Limits(context_length, static_cast<int32_t>(max_sequences));
    return limits.pages() <= kMaxPages && FullestNode(limits).fits();
  }

  // The largest value in [0, most] for which `fits` holds; it holds for 0 and for all below one
  // for which it holds.
  template <typename Predicate>
  static int64_t Largest(int64_t most, Predicate fits) {
    int64_t low = 0;
    for (int64_t high = most; low < high;) {
      const int64_t middle = high - (high - low) / 2;
      if (fits(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  int32_t LargestSequences() const {
    return static_cast<int32_t>(
        Largest(job_.max_sequences, [&](int64_t n) { return Fits(job_.context_length, n); }));
  }

  // For one sequence, in whole pages.
  int64_t LargestContext() const {
    return kPageSize * Largest(job_.context_length / kPageSize,
                               [&](int64_t pages) { return Fits(pages * kPageSize, 1); });
  }

 private:
  const Job& job_;
  const Layout& layout_;
  std::vector<ShardSpec> shards_;
};

std::string Sequences(int32_t count, int64_t context_length) {
  return absl::StrCat(FormatCount(count, "sequence"), " of ", FormatCount(context_length, "token"));
}

// Judges which nodes and cores the shards of every stage find.
void JudgePlacement(const Job& job, Candidate& candidate) {
  const Layout& layout = candidate.layout;
  candidate.useful_shards = layout.tensor;
  for (int32_t first = 0; first < job.ranks(); first += layout.tensor) {
    std::set<int32_t> nodes;
    for (int32_t i = 0; i < layout.tensor; ++i) nodes.insert(job.machine.devices[first + i].node);
    int64_t cores = 0;
    std::vector<std::string> hosts;
    for (int32_t node : nodes) {
      cores += job.machine.nodes[node].cores;
      hosts.push_back(job.machine.nodes[node].host);
    }
    candidate.useful_shards = std::min(candidate.useful_shards, cores);
    if (hosts.size() > 1 && candidate.crossing.empty()) {
      candidate.crossing = absl::StrJoin(hosts, " and ");
    }
  }
}

std::string MemoryRefusal(const Job& job, const Fit& fit, const NodeNeed& need, int32_t sequences,
                          int32_t fitting) {
  const topology::Node& node = job.machine.nodes[need.node];
  std::string refusal = absl::StrCat(
      "node ", node.host, " would need ", FormatBytes(need.needed_bytes), " for ",
      Sequences(sequences, job.context_length), " and has ", FormatBytes(need.usable_bytes),
      " to use (7/8 of ", FormatBytes(node.memory_bytes), " free)");
  if (fitting > 0) {
    absl::StrAppend(&refusal, "; ", Sequences(fitting, job.context_length), " would fit");
  } else if (const int64_t context = fit.LargestContext(); context > 0) {
    absl::StrAppend(&refusal, "; one sequence with a context of ", context, " would fit");
  } else {
    absl::StrAppend(&refusal, "; not even a short context would fit");
  }
  return refusal;
}

std::string SequencesReason(const Job& job, int32_t sequences) {
  std::string reason = absl::StrCat(Sequences(sequences, job.context_length), " at once");
  if (job.sequences_asked) return reason + ", as asked.";
  if (sequences == job.max_sequences) return reason + ": all have room in memory.";
  return reason + ": memory has no room for more.";
}

void JudgeMemory(const Job& job, Candidate& candidate) {
  const Fit fit(job, candidate.layout);
  const int32_t fitting = fit.LargestSequences();
  const int32_t least = job.sequences_asked ? job.max_sequences : 1;
  const int32_t sequences = std::max(fitting, least);
  const ReplicaLimits limits = fit.Limits(job.context_length, sequences);
  if (limits.pages() > kMaxPages) {
    candidate.refusal = absl::StrCat(Sequences(sequences, job.context_length),
                                     " need more pages than the ", kMaxPages, " of a cache");
    return;
  }
  const NodeNeed need = fit.FullestNode(limits);
  candidate.memory_ratio = need.ratio();
  if (fitting < least) {
    candidate.refusal = MemoryRefusal(job, fit, need, sequences, fitting);
    return;
  }
  const topology::Node& node = job.machine.nodes[need.node];
  candidate.memory_reason =
      absl::StrCat("Memory: node ", node.host, ", the fullest, needs ",
                   FormatBytes(need.needed_bytes), " of ", FormatBytes(node.memory_bytes), ".");
  candidate.sequences_reason = SequencesReason(job, sequences);

  Plan& plan = candidate.plan;
  plan.layout = candidate.layout;
  plan.micro_batches = plan.layout.pipeline;
  plan.max_sequences = sequences;
  plan.max_micro_batch_rows = limits.max_micro_batch_rows;
  plan.page_size = limits.page_size;
  plan.pages = limits.pages();
  plan.context_length = limits.context_length;
  const std::vector<int32_t> ranks_of_nodes = RanksOfNodes(job.machine);
  for (int32_t i = 0; i < job.ranks(); ++i) {
    RankPlan rank;
    rank.rank = i;
    rank.shard = i % plan.layout.tensor;
    rank.stage = i / plan.layout.tensor % plan.layout.pipeline;
    rank.replica = i / (plan.layout.tensor * plan.layout.pipeline);
    rank.layers = StageLayers(job.model.num_layers, plan.layout.pipeline, rank.stage);
    rank.threads = std::max(1, job.NodeOf(i).cores / ranks_of_nodes[job.machine.devices[i].node]);
    const RankMemory memory = fit.Memory(rank.stage, rank.shard, limits);
    rank.weight_bytes = memory.weight_bytes;
    rank.kv_bytes = memory.kv_bytes;
    plan.ranks.push_back(rank);
  }
}

}  // namespace

std::vector<int32_t> RanksOfNodes(const topology::Machine& machine) {
  std::vector<int32_t> ranks(machine.nodes.size(), 0);
  for (const topology::Device& device : machine.devices) ++ranks[device.node];
  return ranks;
}

std::string CheckPipelineParallel(const model::ModelConfig& model, int32_t pipeline) {
  if (pipeline <= model.num_layers) return "";
  return absl::StrCat("pp=", pipeline, ": ", pipeline, " stages of ", model.num_layers,
                      " layers cannot be, since a stage holds at least one");
}

Candidate JudgeLayout(const Job& job, const Layout& layout) {
  Candidate candidate;
  candidate.layout = layout;
  const absl::Status tensor = CheckTensorParallel(job.model, layout.tensor);
  candidate.refusal = tensor.ok() ? CheckPipelineParallel(job.model, layout.pipeline)
                                  : std::string(tensor.message());
  if (!candidate.refusal.empty()) return candidate;
  JudgePlacement(job, candidate);
  JudgeMemory(job, candidate);
  return candidate;
}

}  // namespace skein::plan

#include "parallel/planner/fit.h"

#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/range.h"
#include "base/status_macros.h"
#include "parallel/planner/job_placement.h"

namespace skein::plan {

absl::StatusOr<Fit> Fit::Create(const Job& job, const Candidate& of, const ReplicaLimits& limits) {
  Fit fit;
  for (const topology::Node& node : job.machine.nodes) {
    fit.pools_.push_back(
        {.name = absl::StrCat("node ", node.host), .free_bytes = node.memory_bytes});
  }
  const std::vector<int32_t> ranks_of_nodes = RanksOfNodes(job.machine, of.ranks);
  // Replicas may be alike.
  std::map<std::tuple<int32_t, int64_t, int64_t, int32_t>, RankMemory> memories;
  for (size_t place = 0; place < of.ranks.size(); ++place) {
    const int32_t shard = static_cast<int32_t>(place) % of.layout.tp_size;
    const Range layers = of.layers[place];
    const int32_t rank = of.ranks[place];
    ReplicaLimits own = limits;
    own.ranks_of_host = ranks_of_nodes[job.machine.devices[rank].node];
    const auto key = std::tuple(shard, layers.begin, layers.end, own.ranks_of_host);
    auto found = memories.find(key);
    if (found == memories.end()) {
      SKEIN_ASSIGN_OR_RETURN(const RankMemory memory, MemoryOfRank(job.model, shard, layers, own));
      found = memories.emplace(key, memory).first;
    }
    fit.Add(rank, job.machine.devices[rank], found->second);
  }
  return fit;
}

const Pool& Fit::Fullest(int64_t pages, int64_t swap_pages) const {
  return *std::max_element(pools_.begin(), pools_.end(), [&](const Pool& a, const Pool& b) {
    return a.Ratio(pages, swap_pages) < b.Ratio(pages, swap_pages);
  });
}

int64_t Fit::FittingPages(double fraction, int64_t swap_pages) const {
  int64_t pages = kMaxPages;
  for (const Pool& pool : pools_) {
    if (pool.page_bytes == 0) continue;  // without caches
    const int64_t left = pool.usable_bytes() - pool.NeededBytes(0, swap_pages);
    const auto share = static_cast<int64_t>(fraction * static_cast<double>(left));
    pages = std::min(pages, share / pool.page_bytes);
  }
  return std::max<int64_t>(pages, 0);
}

void Fit::Add(int32_t rank, const topology::Device& device, const RankMemory& memory) {
  ranks_.push_back(memory);
  Pool& node = pools_[device.node];
  node.program_bytes += memory.process_bytes();
  node.swap_page_bytes += memory.page_bytes;
  if (device.memory_bytes > 0) {
    pools_.push_back({.name = absl::StrCat("the device of rank ", rank, " (", device.name, ")"),
                      .free_bytes = device.memory_bytes});
  }
  Pool& own = device.memory_bytes > 0 ? pools_.back() : pools_[device.node];
  own.weight_bytes += memory.weight_bytes;
  own.buffer_bytes += memory.activation_bytes;
  own.context_bytes += memory.context_bytes;
  own.graph_bytes += memory.graph_bytes;
  own.exchange_bytes += memory.exchange_bytes;
  own.page_bytes += memory.page_bytes;
  largest_page_bytes_ = std::max(largest_page_bytes_, memory.page_bytes);
}

}  // namespace skein::plan

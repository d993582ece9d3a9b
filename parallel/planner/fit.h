// What a layout's ranks take of every pool of memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/planner/candidate.h"
#include "parallel/planner/memory.h"
#include "topology/machine.h"

namespace skein::plan {

// Page ids are int32.
inline constexpr int64_t kMaxPages = std::numeric_limits<int32_t>::max();

// Memory that ranks share: a node's, or a device's own. What its ranks take of it.
struct Pool {
  std::string name;  // "node alpha"
  int64_t free_bytes = 0;

  int64_t weight_bytes = 0;
  int64_t buffer_bytes = 0;
  int64_t context_bytes = 0;
  int64_t graph_bytes = 0;
  int64_t exchange_bytes = 0;
  int64_t program_bytes = 0;
  int64_t page_bytes = 0;       // of a page of each of its ranks' caches
  int64_t swap_page_bytes = 0;  // and of a page that is swapped out

  int64_t usable_bytes() const { return UsableBytes(free_bytes); }
  int64_t NeededBytes(int64_t pages, int64_t swap_pages) const {
    return weight_bytes + buffer_bytes + context_bytes + graph_bytes + exchange_bytes +
           program_bytes + pages * page_bytes + swap_pages * swap_page_bytes;
  }
  double Ratio(int64_t pages, int64_t swap_pages) const {
    return static_cast<double>(NeededBytes(pages, swap_pages)) /
           static_cast<double>(std::max<int64_t>(usable_bytes(), 1));
  }
};

// One layout of a job whose shards and stages are known to divide the model. Pages are swapped to
// the node's memory, where a device has its own.
class Fit {
 public:
  // `limits` without pages. Errors are MemoryOfRank's.
  static absl::StatusOr<Fit> Create(const Job& job, const Candidate& of,
                                    const ReplicaLimits& limits);

  // The memory of the rank at a place, without pages.
  const RankMemory& at(size_t place) const { return ranks_[place]; }
  // On the rank whose pages take the most.
  int64_t PageBytes() const { return largest_page_bytes_; }
  int64_t PagesIn(int64_t bytes_per_rank) const { return bytes_per_rank / largest_page_bytes_; }

  // The one with the largest part of its usable memory taken, by so many pages of every rank.
  const Pool& Fullest(int64_t pages, int64_t swap_pages) const;

  // The pages that every rank may have in this fraction of what all else and `swap_pages` leave.
  int64_t FittingPages(double fraction, int64_t swap_pages) const;

 private:
  Fit() = default;
  void Add(int32_t rank, const topology::Device& device, const RankMemory& memory);

  std::vector<RankMemory> ranks_;
  std::vector<Pool> pools_;  // nodes' first
  int64_t largest_page_bytes_ = 0;
};

}  // namespace skein::plan

// How ranks of one host wake each other while they wait for MPI, which has nothing to sleep on:
// each sleeps on a Bell of its own, in memory that they share, and who has sent it something rings
// it.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/shared_memory/bell.h"
#include "parallel/comm/shared_memory/shared_memory.h"

namespace skein::comm {

class HostBells {
 public:
  // Without bells: Ring does nothing.
  HostBells() = default;
  // A collective call of all ranks of `world`. Ranks that are alone on their host, or cannot share
  // memory with its other ranks, have no bells.
  static absl::StatusOr<HostBells> Connect(Communicator& world, absl::Span<const int> host_of_rank);

  // This rank's own, or null.
  Bell* own() const { return own_; }
  // Once `rank` of the world has something to poll for. Ranks of other hosts have no bell.
  void Ring(int rank) const {
    if (Bell* const bell = BellOf(rank); bell != nullptr) bell->Ring();
  }
  // If it sleeps; one that is about to may be missed.
  void Wake(int rank) const {
    if (Bell* const bell = BellOf(rank); bell != nullptr && bell->HasWaiters()) bell->Ring();
  }

 private:
  Bell* BellOf(int rank) const { return bells_.empty() ? nullptr : bells_[rank]; }

  std::unique_ptr<SharedMemory> memory_;
  std::vector<Bell*> bells_;  // [size of the world], null on other hosts; or empty
  Bell* own_ = nullptr;
};

}  // namespace skein::comm

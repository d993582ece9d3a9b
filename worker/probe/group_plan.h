// Plans of groups whose exchanges a probe measures: which rank has which place in which group.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "parallel/plan/plan.h"

namespace skein::worker {

// Where ranks are: hosts in the order of their first rank, ranks of a host by rank.
struct Places {
  std::vector<int> host;   // [size]
  std::vector<int> local;  // [size]
  int hosts = 0;
  int least_local = 0;  // ranks that each host has at least

  explicit Places(const comm::MpiRuntime& mpi);

  // The first rank of a host.
  int FirstOf(int of_host) const;
};

// Whom one of `count` meets in a round; -1: nobody. In count - 1 rounds (one more where count is
// odd) each meets each other one once.
int PartnerIn(int round, int at, int count);

struct Seat {
  int group = -1;  // none: the rank idles
  int place = 0;
};

// Where a rank of a host is, if each host has so many groups of `size` of its first ranks.
Seat SeatOnHost(const Places& places, int rank, int size, int groups);

// A plan of groups of `size`, whose ranks are shards of a stage or, where `stages`, stages of one
// shard each. Ranks that idle have no part in the layout.
plan::Plan PlanOf(int ranks, int size, bool stages, absl::FunctionRef<Seat(int rank)> seat_of);

}  // namespace skein::worker

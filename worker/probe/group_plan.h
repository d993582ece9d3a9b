// Plans of groups whose exchanges a probe measures: which rank has which place in which group.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "parallel/plan/plan.h"

namespace skein::worker {

// Groups of `hosts` neighbours, of which each has `ranks_per_host` in it.
struct AcrossShape {
  int hosts = 0;
  int ranks_per_host = 1;

  int ranks() const { return hosts * ranks_per_host; }
  friend bool operator==(const AcrossShape&, const AcrossShape&) = default;
};

// Where ranks are: hosts in the order of their first rank, ranks of a host by rank.
struct Places {
  std::vector<int> host;      // [size]
  std::vector<int> local;     // [size]
  std::vector<int> of_hosts;  // ranks, [hosts]

  explicit Places(std::vector<int> host_of_rank);
  explicit Places(const comm::MpiRuntime& mpi);

  int hosts() const { return static_cast<int>(of_hosts.size()); }
  int most_local() const;
  // The first rank of a host.
  int FirstOf(int of_host) const;
  // Of the groups of a host that a plan may sum in, ascending: those that leave no rank of some
  // host over, and powers of two, of which plans have shards where others do not divide the ranks,
  // too.
  std::vector<int> GroupSizes() const;
  // Of the groups over hosts that a plan may sum in: over powers of two of them and over all, one
  // rank of each and, where hosts have as many, all of their ranks.
  std::vector<AcrossShape> GroupsAcross() const;
};

// Whom one of `count` meets in a round; -1: nobody. In count - 1 rounds (one more where count is
// odd) each meets each other one once; behind those nobody meets.
int PartnerIn(int round, int at, int count);

struct Seat {
  int group = -1;  // none: the rank idles
  int place = 0;
};

// Where a rank of a host is, if each host has as many groups of `size` of its first ranks as it
// can, or one where it can.
Seat SeatOnHost(const Places& places, int rank, int size, bool one_group = false);

// Where a rank is, if there are as many groups of a shape as can be.
Seat SeatAcross(const Places& places, int rank, const AcrossShape& shape);

// The same for pairs that meet in a round (PartnerIn) of their host.
Seat SeatInPair(const Places& places, int rank, int round);

// A plan of groups of `size`, whose ranks are shards of a stage or, where `stages`, stages of one
// shard each. Ranks that idle have no part in the layout.
plan::Plan PlanOf(int ranks, int size, bool stages, absl::FunctionRef<Seat(int rank)> seat_of);

}  // namespace skein::worker

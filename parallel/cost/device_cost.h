// The rates of one rank, by what a probe or a datasheet tells. Pure; any thread.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "model/config/stored_types.h"
#include "topology/rates.h"
#include "topology/topology.h"

namespace skein::cost {

// Where a rank computes.
struct Site {
  int32_t host = 0;
  int32_t gpu = -1;  // of the host; -1: on its cores

  friend bool operator==(const Site&, const Site&) = default;
};

// How a rank shares its host's cores; a GPU is a rank's own.
struct CoreShare {
  int32_t threads = 1;
  double of_a_core = 1;   // that a thread has: less than 1 where there are more threads than cores
  bool together = false;  // whether other cores of the host read memory at the same time
  double sets = 1;        // so many ranks' working sets pass through a core's caches in turn
};

// A rank of `threads` on a host with so many ranks of as many threads, of which some compute at
// once.
CoreShare ShareOfCores(int32_t cores, int32_t threads, int32_t ranks, int32_t active_ranks);

// How many of a host's ranks compute at once: with fewer sequences than stages some stages idle.
int32_t ActiveRanks(int32_t ranks, int32_t tp_size, int32_t pp_size, int64_t sequences);

// What plans need of a topology that is sound (CheckTopology). InvalidArgument where some host has
// no name or no cores, several have no fabric, some GPU, or the cores of a host without GPUs, have
// no rates, or some path between GPUs has none: it names the first, and says where they come from.
absl::Status CheckComplete(const topology::Topology& topology);

// Of one make and size, and as fast as measurements tell: work is spread evenly over such.
bool CardsAreAlike(const topology::Gpu& a, const topology::Gpu& b);

const topology::DeviceRates& RatesOf(const topology::Topology& topology, const Site& site);

// Of a working set: between two that are known the time is, too, by doublings; one beyond the
// largest is read like that. Needs a rate.
double ReadBytesPerS(const topology::DeviceRates& rates, int64_t working_set_bytes,
                     const CoreShare& share = {});

// What a rank misses in caches that has its core in turn with others.
struct Missed {
  absl::Duration first;  // of reading the set once: how much longer its first pass takes
  double again = 0;      // of what a pass misses, the share that the next one misses, too
};
// Of a working set, between those that are known by doublings, as ReadBytesPerS; where reads behind
// others were not measured, all of `sets` as large pass through caches in the first pass. Needs a
// rate.
Missed MissedBehindOthers(const topology::DeviceRates& rates, int64_t working_set_bytes,
                          const CoreShare& share);

// What a step of so many rows costs beside reading and multiplying: between those that are known in
// proportion, of fewer and more rows as of the nearest.
topology::Overhead OverheadOf(const topology::DeviceRates& rates, int64_t rows);

// Of so many decodes at once of a working set, of all threads. Between two sets that are known it
// changes as reads do, where those tell, else by doublings; between the rows that are known in
// proportion; fewer and more rows are as the nearest. Needs attention's rates.
topology::AttentionRate AttentionOf(const topology::DeviceRates& rates, int64_t working_set_bytes,
                                    int64_t rows, const CoreShare& share = {});

// Of products of so many rows with weights of a working set, likewise; between the rows that are
// known as roofs are, reads' and arithmetic's, and at most in proportion. `types` have parts of the
// weights. For one that is not among the rates, the first that is stands in; for a quantised one
// that with blocks as long, if there are, and the most like bits. Needs a rate.
double OperationsPerS(const topology::DeviceRates& rates, absl::Span<const model::TypeShare> types,
                      int64_t working_set_bytes, int64_t rows, const CoreShare& share = {});

}  // namespace skein::cost

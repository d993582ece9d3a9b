// What ranks take to exchange data: by curves that a probe measured where there are such, else by
// latency and bandwidth of the links. Pure; any thread.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "parallel/cost/device_cost.h"
#include "topology/topology.h"

namespace skein::cost {

// Of all links of one pair together: its own where it is a slow one, else its path's. Needs rates
// (CheckComplete), and a fabric between hosts.
topology::LinkRate LinkBetween(const topology::Topology& topology, const Site& a, const Site& b);

// kAsleep: who receives has waited for so long that it sleeps; on cores it must be woken. kAwake:
// it polls still.
enum class Receiver : uint8_t { kAsleep, kAwake };

// A message of `bytes`, one way.
absl::Duration SendTime(const topology::Topology& topology, const Site& from, const Site& to,
                        int64_t bytes, Receiver receiver = Receiver::kAsleep);

// The tokens that a pipeline's last stage drew for so many rows, until its first stage begins with
// them: as a probe measured it, else as a message.
absl::Duration TokenReturnTime(const topology::Topology& topology, const Site& last,
                               const Site& first, int64_t rows,
                               Receiver receiver = Receiver::kAsleep);

// Sums `bytes` on each of `sites`: in one shot, in which each sends all it has to each, where
// NVLink or PCIe switches connect each two; or around a ring, in which each sends 2 (n - 1) / n of
// it; whichever takes less. The ring is the one whose slowest link is the fastest (of up to 8
// sites; of more in their order). 0 for one site. share: of cores, while they sum: where they have
// cores enough, what was measured of such a group alone counts. A host's first GPUs were measured:
// others take as much longer or shorter as their links say.
absl::Duration AllReduceTime(const topology::Topology& topology, absl::Span<const Site> sites,
                             int64_t bytes, const CoreShare& share = {});

// The same of sites with GPUs that sum by way of their hosts' memory, which no probe measures:
// copies there and back, and 2 (n - 1) / n of it between the hosts' ranks, on one host at the rate
// of copies. Where that is not told, as AllReduceTime.
absl::Duration HostSumTime(const topology::Topology& topology, absl::Span<const Site> sites,
                           int64_t bytes);

// Each gets what all others have, `bytes` in all. share: likewise.
absl::Duration AllGatherTime(const topology::Topology& topology, absl::Span<const Site> sites,
                             int64_t bytes, const CoreShare& share = {});

}  // namespace skein::cost

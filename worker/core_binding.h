// Binds ranks to cores that they share, where a host has fewer cores than its ranks have threads.
//
// A rank that waits polls, and the scheduler takes it for one that computes: left to it, three
// ranks come to share a core while another one has the next for itself, and two that compute at the
// same time share one while those that wait for them have the other.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "parallel/plan/plan.h"

namespace skein::worker {

// The places of a rank's cores among the `cores` of its host, ascending. What computes at the same
// time gets unlike cores as far as there are: first the shards of a stage, then replicas, then
// stages, of which neighbours share. None where the rank has no part or may use all cores, where
// the host's ranks need not share any, and where some cores would have more ranks than others: a
// scheduler shares those out better. `host_ranks`: that are on this host. Pure.
std::vector<int> CoresOfRank(const plan::Plan& plan, absl::Span<const int> host_ranks, int rank,
                             int cores);

// Binds all threads that this process has to those cores; later ones inherit it. Leaves ranks alone
// that may not all use the same processors, since their launcher has bound them, and hosts on which
// a quota gives less than their cores. Says what it did, or "". A call of all ranks of `mpi`.
// Errors are those of the system.
absl::StatusOr<std::string> BindToCores(comm::MpiRuntime& mpi, const plan::Plan& plan);

}  // namespace skein::worker

// Figures of hosts from elsewhere than a measurement of now: what was kept of an earlier one, or
// what somebody gives a job in a file, of hosts that are alike, or of tests.
#pragma once

#include "absl/status/status.h"
#include "topology/topology.h"

namespace skein::topology {

// Gives `mine`, of one host as it is now, figures of the host of `given` that has its name, else of
// the first one; its GPUs, those of the GPU at the same address, else of the first of that model.
// Its own cores and GPUs, and what connects them, stay. FailedPrecondition where `given` has no
// rates for what computes here: a GPU, or cores where there is none; `mine` stays as it was.
absl::Status TakeFigures(const Topology& given, Topology& mine);

}  // namespace skein::topology

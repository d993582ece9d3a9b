// The machines of several jobs as one cluster. Pure.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "topology/topology.h"

namespace skein::coordinator {

// The hosts of all of these, each once, and the slowest of the fabrics between them, or an assumed
// one where no job has several hosts. NotFound where there are none. FailedPrecondition: two have
// GPUs of one host, and how these are connected was not told.
absl::StatusOr<topology::Topology> JoinHosts(std::vector<topology::Topology> of_jobs);

}  // namespace skein::coordinator

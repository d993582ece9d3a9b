// The machines of a running cluster.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/endpoint.h"
#include "topology/topology.h"

namespace skein::client {

// The hosts of the jobs at this coordinator, as they were before they loaded. Errors are for
// people: nobody listens, no job is there.
absl::StatusOr<topology::Topology> FetchTopology(const Endpoint& coordinator);

}  // namespace skein::client

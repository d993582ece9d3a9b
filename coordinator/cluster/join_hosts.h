// The machines of several jobs as one cluster. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "topology/topology.h"

namespace skein::coordinator {

// Where a host of a job is in the joined topology, and a GPU of it.
struct JoinedPlace {
  int32_t host = 0;
  int32_t gpu = -1;  // -1: on its cores, or it has a GPU that nobody has told of

  friend bool operator==(const JoinedPlace&, const JoinedPlace&) = default;
};

// Hosts by name, GPUs by address. `joined` has the job's hosts; gpu: -1 for a rank on cores.
JoinedPlace PlaceInJoined(const topology::Topology& joined, const topology::Host& of_job,
                          int32_t gpu);

// The hosts of all of these, each once, and the slowest of the fabrics between them, or an assumed
// one where no job has several hosts. NotFound where there are none. FailedPrecondition: two have
// GPUs of one host, and how these are connected was not told.
absl::StatusOr<topology::Topology> JoinHosts(std::vector<topology::Topology> of_jobs);

}  // namespace skein::coordinator

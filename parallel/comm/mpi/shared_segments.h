// Open MPI's shared memory files, so that a job which is killed leaves none behind.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::comm {

// Paths of Open MPI's segments (vader_segment.* of 4.1, sm_segment.* of 5.0) among the lines of a
// /proc/PID/maps, each once; deleted ones are left out.
std::vector<std::string> SegmentsInMaps(std::string_view maps);

// Removes the names of all segments that this process has mapped; their memory stays. To be
// called once every rank of the host has mapped those of all others, or they find none.
absl::Status UnlinkSharedSegments();

}  // namespace skein::comm

// Open MPI's shared memory files, so that a job which is killed leaves none behind.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::comm {

// Paths of the segments that Open MPI made for `rank` (vader_segment.HOST.USER.JOB.RANK of 4.1,
// sm_segment.* of 5.0) among the lines of a /proc/PID/maps, each once; deleted ones are left out.
std::vector<std::string> SegmentsOfRank(std::string_view maps, int rank);

// Removes the names of this process's own segments and returns them; the memory stays mapped. To
// be called once every rank of the host has mapped them, or they would not be found.
absl::StatusOr<std::vector<std::string>> UnlinkSegments(int rank);

// Makes the names again, as empty files, for MPI_Finalize, which complains when it cannot remove
// them.
void RestoreSegmentNames(const std::vector<std::string>& paths);

}  // namespace skein::comm

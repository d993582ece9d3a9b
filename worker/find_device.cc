#include "worker/find_device.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "parallel/comm/gather_strings.h"

namespace skein::worker {

absl::StatusOr<RankDevice> FindDevice(comm::MpiRuntime& mpi, std::optional<DeviceKind> asked,
                                      bool oversubscribe) {
  DeviceChoice choice = {
      .asked = asked, .oversubscribe = oversubscribe, .local_rank = mpi.local_rank()};
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> seen,
                         comm::GatherStrings(mpi.world(), absl::StrJoin(SeeGpus(asked), " ")));
  for (int rank = 0; rank < mpi.size(); ++rank) {
    if (mpi.host_of(rank) != mpi.host_of(mpi.rank())) continue;
    choice.seen.push_back(absl::StrSplit(seen[rank], ' ', absl::SkipEmpty()));
  }
  return ChooseDevice(choice);
}

}  // namespace skein::worker

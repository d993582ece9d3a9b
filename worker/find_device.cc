#include "worker/find_device.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

absl::Status AgreeOnKind(comm::Communicator& world, const RankDevice& device) {
  const bool gpu = device.device.kind == DeviceKind::kCuda;
  const std::string mine = gpu                     ? "a GPU"
                           : device.no_gpu.empty() ? "CPUs"
                                                   : absl::StrCat("CPUs (", device.no_gpu, ")");
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> all, comm::GatherStrings(world, mine));
  const auto other = std::find_if(all.begin(), all.end(), [&](const std::string& theirs) {
    return theirs.front() != all[0].front();
  });
  if (other == all.end()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "rank 0 computes on ", all[0], " and rank ", other - all.begin(), " on ", *other,
      ": the ranks of a job compute on devices of one kind; mend that host, or say --device=cpu"));
}

}  // namespace skein::worker

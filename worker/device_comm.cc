#include "worker/device_comm.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/device_events.h"
#include "base/status_macros.h"
#include "kernels/cuda/cuda_copies.h"
#include "kernels/cuda/cuda_events.h"
#include "parallel/comm/gather_strings.h"
#include "parallel/comm/nccl/nccl_transport.h"

namespace skein::worker {
namespace {

std::string FirstReason(DeviceComm asked, absl::Span<const DeviceCommVote> votes) {
  for (size_t rank = 0; rank < votes.size(); ++rank) {
    const DeviceCommVote& vote = votes[rank];
    if (!vote.no_nccl.empty()) return absl::StrCat("rank ", rank, ": ", vote.no_nccl);
    // Who asks for it may share one: NCCL itself refuses that, unless it takes them for two hosts.
    for (size_t other = 0; asked == DeviceComm::kAuto && other < rank; ++other) {
      if (votes[other].host == vote.host && votes[other].gpu == vote.gpu) {
        return absl::StrCat("ranks ", other, " and ", rank, " share a GPU");
      }
    }
  }
  return "";
}

absl::StatusOr<std::vector<DeviceCommVote>> GatherVotes(comm::MpiRuntime& mpi, int gpu,
                                                        const std::string& no_nccl) {
  SKEIN_ASSIGN_OR_RETURN(const auto gpus, GatherStrings(mpi.world(), absl::StrCat(gpu)));
  SKEIN_ASSIGN_OR_RETURN(const auto reasons, GatherStrings(mpi.world(), no_nccl));
  std::vector<DeviceCommVote> votes;
  for (int rank = 0; rank < mpi.size(); ++rank) {
    DeviceCommVote vote = {.host = mpi.host_of(rank), .no_nccl = reasons[rank]};
    if (!absl::SimpleAtoi(gpus[rank], &vote.gpu)) return absl::InternalError("no GPU's number");
    votes.push_back(std::move(vote));
  }
  return votes;
}

}  // namespace

absl::StatusOr<DeviceComm> ParseDeviceComm(const std::string& text) {
  if (text == "auto") return DeviceComm::kAuto;
  if (text == "nccl") return DeviceComm::kNccl;
  if (text == "host") return DeviceComm::kHost;
  return absl::InvalidArgumentError(absl::StrCat("must be auto, nccl or host, not '", text, "'"));
}

absl::StatusOr<std::string> WhyNotNccl(DeviceComm asked, absl::Span<const DeviceCommVote> votes) {
  const std::string why = FirstReason(asked, votes);
  if (asked == DeviceComm::kNccl && !why.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("--device-comm=nccl, but ", why));
  }
  return why;
}

absl::StatusOr<std::vector<std::unique_ptr<DeviceCopies>>> ConnectGpus(
    DeviceComm asked, comm::MpiRuntime& mpi, int gpu, const std::string& self,
    absl::Duration timeout, absl::Span<comm::Communicator* const> groups) {
  std::vector<std::unique_ptr<DeviceCopies>> copies;
  if (groups.empty()) return copies;
  const std::string no_nccl =
      asked == DeviceComm::kHost ? "--device-comm=host" : std::string(comm::OpenNccl().message());
  SKEIN_ASSIGN_OR_RETURN(const std::vector<DeviceCommVote> votes, GatherVotes(mpi, gpu, no_nccl));
  SKEIN_ASSIGN_OR_RETURN(const std::string by_host, WhyNotNccl(asked, votes));
  if (mpi.rank() == 0) {
    if (by_host.empty()) {
      spdlog::info("activations go from GPU to GPU over NCCL");
    } else {
      spdlog::warn("activations go from GPU to GPU by way of the hosts' memory, which is slow: {}",
                   by_host);
    }
  }
  for (comm::Communicator* const group : groups) {
    if (by_host.empty()) {
      SKEIN_ASSIGN_OR_RETURN(std::shared_ptr<DeviceEvents> events, kernels::MakeCudaEvents(gpu));
      SKEIN_ASSIGN_OR_RETURN(auto transport,
                             comm::MakeNcclTransport(*group, self, events, timeout));
      group->UseDevice(std::move(transport), std::move(events));
      group->set_timeout(absl::InfiniteDuration());  // ranks load for unlike times
    } else {
      SKEIN_ASSIGN_OR_RETURN(auto made, kernels::MakeCudaCopies(gpu));
      group->StageThrough(copies.emplace_back(std::move(made)).get());
    }
  }
  return copies;
}

}  // namespace skein::worker

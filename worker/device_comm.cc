#include "worker/device_comm.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/device_events.h"
#include "base/status_macros.h"
#include "kernels/cuda/cuda_copies.h"
#include "kernels/cuda/cuda_events.h"
#include "kernels/cuda/cuda_peer_sums.h"
#include "parallel/comm/gather_strings.h"
#include "parallel/comm/nccl/nccl_transport.h"
#include "parallel/comm/p2p/peer_transport.h"

namespace skein::worker {
namespace {

std::string FirstReason(DeviceComm asked, absl::Span<const DeviceCommVote> votes) {
  for (size_t rank = 0; rank < votes.size(); ++rank) {
    const DeviceCommVote& vote = votes[rank];
    if (!vote.no_nccl.empty()) return absl::StrCat("rank ", rank, ": ", vote.no_nccl);
    // Who asks for it may share one: NCCL itself refuses that, unless it takes them for two hosts.
    for (size_t other = 0; asked == DeviceComm::kAuto && other < rank; ++other) {
      if (votes[other].uuid == vote.uuid) {
        return absl::StrCat("ranks ", other, " and ", rank, " share a GPU");
      }
    }
  }
  return "";
}

// Why sums of so many shards are no work for NCCL; empty where they are.
std::string WhyNoSums(const GpuEnd& end, int shards) {
  // Two summands have one order.
  if (!end.deterministic || shards <= 2) return "";
  return absl::StrCat("--deterministic adds what ", shards, " shards have as a tree");
}

// Small sums over memory, or an error.
absl::StatusOr<std::unique_ptr<comm::DeviceTransport>> OverPeers(
    const GpuEnd& end, comm::MpiRuntime& mpi, comm::Communicator& group,
    std::unique_ptr<comm::DeviceTransport> nccl) {
  SKEIN_ASSIGN_OR_RETURN(
      comm::PeerTransport made,
      comm::MakePeerTransport(group, absl::StrCat(mpi.host_of(mpi.rank())),
                              kernels::MakeCudaPeerSums(end.gpu, group.rank(), group.size()),
                              std::move(nccl)));
  if (made.why_not.empty()) {
    if (group.rank() == 0) spdlog::info("small sums of '{}' go over peer memory", group.name());
    return std::move(made.transport);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("--device-comm=peers, but not for '", group.name(), "': ", made.why_not));
}

}  // namespace

std::string_view DeviceCommName(DeviceComm comm) {
  switch (comm) {
    case DeviceComm::kAuto:
      return "auto";
    case DeviceComm::kNccl:
      return "nccl";
    case DeviceComm::kPeers:
      return "peers";
    case DeviceComm::kHost:
      return "host";
  }
  return "";
}

absl::StatusOr<DeviceComm> ParseDeviceComm(const std::string& text) {
  for (const DeviceComm comm :
       {DeviceComm::kAuto, DeviceComm::kNccl, DeviceComm::kPeers, DeviceComm::kHost}) {
    if (text == DeviceCommName(comm)) return comm;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("must be auto, nccl, peers or host, not '", text, "'"));
}

absl::StatusOr<std::string> WhyNotNccl(DeviceComm asked, absl::Span<const DeviceCommVote> votes) {
  const std::string why = FirstReason(asked, votes);
  const bool must = asked == DeviceComm::kNccl || asked == DeviceComm::kPeers;
  if (must && !why.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--device-comm=", std::string(DeviceCommName(asked)), ", but ", why));
  }
  return why;
}

absl::StatusOr<std::string> AgreeOnNccl(comm::Communicator& world, DeviceComm asked,
                                        const RankDevice& device) {
  std::string no_nccl;
  if (device.device.kind == DeviceKind::kCpu) {
    no_nccl = "it computes on a CPU";
  } else if (asked == DeviceComm::kHost) {
    no_nccl = "--device-comm=host";
  } else if (device.mig) {
    no_nccl = absl::StrCat("NCCL reaches no slice of a GPU (", device.device.name, ")");
  } else if (world.size() > 1) {
    no_nccl = std::string(comm::OpenNccl().message());
  }
  SKEIN_ASSIGN_OR_RETURN(const auto uuids, GatherStrings(world, device.uuid));
  SKEIN_ASSIGN_OR_RETURN(const auto reasons, GatherStrings(world, no_nccl));
  std::vector<DeviceCommVote> votes;
  for (int rank = 0; rank < world.size(); ++rank) {
    votes.push_back({.uuid = uuids[rank], .no_nccl = reasons[rank]});
  }
  return WhyNotNccl(asked, votes);
}

absl::StatusOr<std::vector<std::unique_ptr<DeviceCopies>>> ConnectGpus(
    const GpuEnd& end, comm::MpiRuntime& mpi, comm::Communicator* sums,
    absl::Span<comm::Communicator* const> messages) {
  std::vector<comm::Communicator*> groups;
  if (sums != nullptr) groups.push_back(sums);
  groups.insert(groups.end(), messages.begin(), messages.end());
  std::vector<std::unique_ptr<DeviceCopies>> copies;
  if (groups.empty()) return copies;
  SKEIN_ASSIGN_OR_RETURN(std::string by_host, end.why_not_nccl);
  if (const std::string why = WhyNoSums(end, sums == nullptr ? 1 : sums->size()); !why.empty()) {
    SKEIN_ASSIGN_OR_RETURN(by_host, WhyNotNccl(end.asked, {{.no_nccl = why}}));
  }
  if (mpi.rank() == 0) {
    if (by_host.empty()) {
      spdlog::info("activations go from GPU to GPU over NCCL");
    } else {
      spdlog::warn("activations go from GPU to GPU by way of the hosts' memory, which is slow: {}",
                   by_host);
    }
  }
  for (comm::Communicator* const group : groups) {
    if (!by_host.empty()) {
      SKEIN_ASSIGN_OR_RETURN(auto made, kernels::MakeCudaCopies(end.gpu));
      group->StageThrough(copies.emplace_back(std::move(made)).get());
      continue;
    }
    SKEIN_ASSIGN_OR_RETURN(std::shared_ptr<DeviceEvents> events, kernels::MakeCudaEvents(end.gpu));
    SKEIN_ASSIGN_OR_RETURN(auto transport,
                           comm::MakeNcclTransport(*group, end.self, events, end.timeout));
    if (group == sums && end.asked == DeviceComm::kPeers) {
      SKEIN_ASSIGN_OR_RETURN(transport, OverPeers(end, mpi, *group, std::move(transport)));
    }
    group->UseDevice(std::move(transport), std::move(events));
    group->set_timeout(absl::InfiniteDuration());  // ranks load for unlike times
  }
  return copies;
}

}  // namespace skein::worker

#include "worker/device_comm.h"

#include <spdlog/spdlog.h>

#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/device_events.h"
#include "base/device_timer.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_copies.h"
#include "kernels/cuda/cuda_events.h"
#include "kernels/cuda/cuda_peer_sums.h"
#include "kernels/cuda/cuda_timer.h"
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

absl::StatusOr<std::string> UnlessAsked(DeviceComm asked, std::string why) {
  const bool must = asked == DeviceComm::kNccl || asked == DeviceComm::kPeers;
  if (!must || why.empty()) return why;
  return absl::FailedPreconditionError(
      absl::StrCat("--device-comm=", std::string(DeviceCommName(asked)), ", but ", why));
}

// For a first sum, and for those that are measured.
constexpr absl::Duration kSumTimeout = absl::Seconds(20);

// Small sums over memory where they can be; an error where they cannot, and are asked for. Where
// they are not, they are measured against NCCL's.
absl::StatusOr<std::unique_ptr<comm::DeviceTransport>> OverPeers(
    const GpuEnd& end, comm::MpiRuntime& mpi, comm::Communicator& group,
    std::unique_ptr<comm::DeviceTransport> nccl) {
  const bool asked = end.asked == DeviceComm::kPeers;
  std::unique_ptr<DeviceTimer> timer;
  if (!asked) {
    SKEIN_ASSIGN_OR_RETURN(timer, kernels::MakeCudaTimer(end.gpu));
  }
  SKEIN_ASSIGN_OR_RETURN(comm::PeerTransport made,
                         comm::MakePeerTransport(group,
                                                 {.self = end.self,
                                                  .host = absl::StrCat(mpi.host_of(mpi.rank())),
                                                  .sums = kernels::MakeCudaPeerSums(
                                                      end.gpu, group.rank(), group.size()),
                                                  .timer = timer.get(),
                                                  .timeout = kSumTimeout},
                                                 std::move(nccl)));
  if (asked && !made.why_not.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--device-comm=peers, but not for '", group.name(), "': ", made.why_not));
  }
  if (group.rank() == 0) spdlog::info("{}", DescribePeerSums(group.name(), made));
  return std::move(made.transport);
}

// Why the group's ranks could not meet by NCCL and go by way of the hosts; empty where they met.
absl::StatusOr<std::string> ConnectByNccl(const GpuEnd& end, comm::MpiRuntime& mpi,
                                          comm::Communicator& group, bool sums) {
  SKEIN_ASSIGN_OR_RETURN(std::shared_ptr<DeviceEvents> events, kernels::MakeCudaEvents(end.gpu));
  // A stage in the middle has two hops.
  auto transport = comm::MakeNcclTransport(group, end.self, events, end.timeout,
                                           sums ? 0 : kernels::kHopMultiprocessors / 2);
  SKEIN_ASSIGN_OR_RETURN(std::string why, WhyRefused(end.asked, transport.status()));
  if (why.empty()) {
    if (sums && end.asked != DeviceComm::kNccl) {
      SKEIN_ASSIGN_OR_RETURN(transport, OverPeers(end, mpi, group, *std::move(transport)));
    }
    group.UseDevice(*std::move(transport), std::move(events));
  }
  group.set_timeout(absl::InfiniteDuration());  // ranks load for unlike times
  return why;
}

// `none`: why nothing goes over NCCL; `no_sums`: why no sums do.
void LogWays(const std::string& none, const std::string& no_sums, bool hops) {
  if (none.empty() && no_sums.empty()) {
    spdlog::info("activations go from GPU to GPU over NCCL");
  } else {
    spdlog::warn("{} from GPU to GPU by way of the hosts' memory, which is slow: {}",
                 none.empty() && hops ? "hops go over NCCL, but sums go" : "activations go",
                 none.empty() ? no_sums : none);
  }
}

// What a device waits for that waits for a group: hops, which may have failed.
std::function<absl::Status()> CheckOf(absl::Span<comm::Communicator* const> hops) {
  return [hops = std::vector<comm::Communicator*>(hops.begin(), hops.end())]() -> absl::Status {
    for (comm::Communicator* const hop : hops) SKEIN_RETURN_IF_ERROR(hop->Check());
    return absl::OkStatus();
  };
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
  return UnlessAsked(asked, FirstReason(asked, votes));
}

absl::StatusOr<std::string> WhyNoSums(DeviceComm asked, bool deterministic, int shards) {
  // Two summands have one order.
  if (!deterministic || shards <= 2) return "";
  return UnlessAsked(asked, absl::StrCat("--deterministic adds what ", shards,
                                         " shards have as a tree; with tp of 1 or 2 it would go "
                                         "over NCCL"));
}

absl::StatusOr<std::string> WhyRefused(DeviceComm asked, const absl::Status& met) {
  if (!absl::IsFailedPrecondition(met)) {
    SKEIN_RETURN_IF_ERROR(met);
    return "";
  }
  return UnlessAsked(asked, std::string(met.message()));
}

absl::StatusOr<std::string> AgreeOnNccl(comm::Communicator& world, DeviceComm asked,
                                        const RankDevice& device,
                                        absl::FunctionRef<absl::Status()> open) {
  std::string no_nccl;
  if (device.device.kind == DeviceKind::kCpu) {
    no_nccl = "it computes on a CPU";
  } else if (asked == DeviceComm::kHost) {
    no_nccl = "--device-comm=host";
  } else if (device.mig) {
    no_nccl = absl::StrCat("NCCL reaches no slice of a GPU (", device.device.name, ")");
  } else if (world.size() > 1) {
    no_nccl = std::string(open().message());
  }
  SKEIN_ASSIGN_OR_RETURN(const auto uuids, GatherStrings(world, device.uuid));
  SKEIN_ASSIGN_OR_RETURN(const auto reasons, GatherStrings(world, no_nccl));
  std::vector<DeviceCommVote> votes;
  for (int rank = 0; rank < world.size(); ++rank) {
    votes.push_back({.uuid = uuids[rank], .no_nccl = reasons[rank]});
  }
  return WhyNotNccl(asked, votes);
}

std::string DescribePeerSums(const std::string& group, const comm::PeerTransport& made) {
  if (!made.why_not.empty()) {
    return absl::StrCat("sums of '", group, "' go over NCCL, not over peer memory: ", made.why_not);
  }
  return absl::StrCat("sums of '", group, "' up to ", FormatBytes(made.most_bytes),
                      " go over peer memory, larger ones over NCCL",
                      made.times.empty()
                          ? ""
                          : absl::StrCat(" (in one shot to ", FormatBytes(made.one_shot_bytes),
                                         "), by what each took: "),
                      comm::DescribeTimes(made.times));
}

absl::StatusOr<std::vector<std::unique_ptr<DeviceCopies>>> ConnectGpus(
    const GpuEnd& end, comm::MpiRuntime& mpi, comm::Communicator* sums,
    absl::Span<comm::Communicator* const> messages) {
  std::vector<comm::Communicator*> groups;
  if (sums != nullptr) groups.push_back(sums);
  groups.insert(groups.end(), messages.begin(), messages.end());
  std::vector<std::unique_ptr<DeviceCopies>> copies;
  if (groups.empty()) return copies;
  SKEIN_ASSIGN_OR_RETURN(const std::string none, end.why_not_nccl);
  SKEIN_ASSIGN_OR_RETURN(const std::string no_sums, WhyNoSums(end.asked, end.deterministic,
                                                              sums == nullptr ? 1 : sums->size()));
  if (mpi.rank() == 0) LogWays(none, no_sums, !messages.empty());
  for (comm::Communicator* const group : groups) {
    std::string why = none;
    if (why.empty() && group == sums) why = no_sums;
    if (why.empty()) {
      SKEIN_ASSIGN_OR_RETURN(why, ConnectByNccl(end, mpi, *group, group == sums));
      if (!why.empty() && group->rank() == 0) {
        spdlog::warn("'{}' goes by way of the hosts' memory, which is slow: {}", group->name(),
                     why);
      }
    }
    if (why.empty()) continue;
    SKEIN_ASSIGN_OR_RETURN(auto made, kernels::MakeCudaCopies(end.gpu));
    group->StageThrough(copies.emplace_back(std::move(made)).get(),
                        group == sums ? CheckOf(messages) : nullptr);
  }
  return copies;
}

}  // namespace skein::worker

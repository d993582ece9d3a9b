#include "worker/bench/bench_ranks.h"

#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/stream.h"
#include "base/units.h"
#include "base/view.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/gather_strings.h"
#include "parallel/comm/nccl/nccl_transport.h"
#include "worker/core_binding.h"
#include "worker/engine/stage_groups.h"
#include "worker/find_device.h"

namespace skein::worker {
namespace {

// For what ranks do together, loading aside.
constexpr absl::Duration kTimeout = absl::Minutes(2);
// Replicas that have their prompts wait for those that have one more.
constexpr absl::Duration kReplicaTimeout = absl::Hours(1);

// NCCL takes ranks of one GPU for ranks of hosts of their own, which talk over sockets.
void TakeForHosts(int rank) {
  setenv("NCCL_HOSTID", absl::StrCat("rank-", rank).c_str(), 1);
  for (const auto& [name, value] : {std::pair{"NCCL_P2P_DISABLE", "1"},
                                    {"NCCL_SHM_DISABLE", "1"},
                                    {"NCCL_NET", "Socket"},
                                    {"NCCL_SOCKET_IFNAME", "lo"}}) {
    setenv(name, value, 1);
  }
}

}  // namespace

absl::StatusOr<plan::Layout> LayoutOfBench(const plan::LayoutRequest& asked, int ranks) {
  plan::Layout layout;
  layout.pp_size = asked.pp_size.value_or(1);
  layout.dp_size = asked.dp_size.value_or(1);
  layout.tp_size = asked.tp_size.value_or(std::max(1, ranks / layout.pp_size / layout.dp_size));
  layout.ep_size = asked.ep_size.value_or(1);
  if (layout.ranks() == ranks) return layout;
  return absl::InvalidArgumentError(absl::StrCat("--layout: ", layout.ToString(), " has ",
                                                 FormatCount(layout.ranks(), "rank"),
                                                 "; mpirun started ", ranks));
}

absl::StatusOr<std::unique_ptr<BenchRanks>> BenchRanks::Start(const BenchRankOptions& options) {
  auto ranks = std::unique_ptr<BenchRanks>(new BenchRanks(options));
  int count = 1;
  if (options.started || options.layout != plan::LayoutRequest{}) {
    for (const auto& [name, value] : comm::NcclEnvironment()) setenv(name, value, 1);
    SKEIN_ASSIGN_OR_RETURN(ranks->started_, comm::MpiRuntime::Create());
    ranks->mpi_ = ranks->started_.get();
    ranks->mpi_->world().set_timeout(kTimeout);
    count = ranks->mpi_->size();
  }
  absl::StatusOr<plan::Layout> layout = LayoutOfBench(options.layout, count);
  if (!layout.ok()) ranks->Abandon();
  SKEIN_RETURN_IF_ERROR(layout.status());
  ranks->plan_.layout = *layout;
  if (layout->dp_size > 1) ranks->mpi_->world().set_timeout(kReplicaTimeout);
  for (int32_t rank = 0; rank < count; ++rank) {
    ranks->plan_.ranks.push_back({.rank = rank,
                                  .dp_rank = rank / layout->tp_size / layout->pp_size,
                                  .pp_rank = rank / layout->tp_size % layout->pp_size,
                                  .tp_rank = rank % layout->tp_size});
  }
  return ranks;
}

std::unique_ptr<BenchRanks> BenchRanks::Of(comm::MpiRuntime& mpi, plan::Plan plan,
                                           DeviceComm device_comm) {
  auto ranks = std::unique_ptr<BenchRanks>(new BenchRanks({.device_comm = device_comm}));
  ranks->mpi_ = &mpi;
  ranks->plan_ = std::move(plan);
  return ranks;
}

absl::StatusOr<RankDevice> BenchRanks::Find(std::optional<DeviceKind> asked) {
  if (mpi_ == nullptr) return ChooseDevice({.asked = asked});
  SKEIN_ASSIGN_OR_RETURN(RankDevice device,
                         FindDevice(*mpi_, asked, options_.oversubscribe_devices));
  SKEIN_RETURN_IF_ERROR(AgreeOnKind(mpi_->world(), device));
  if (device.device.kind != DeviceKind::kCuda) return device;
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> uuids,
                         comm::GatherStrings(mpi_->world(), device.uuid));
  const std::set<std::string> unlike(uuids.begin(), uuids.end());
  if (unlike.size() == uuids.size()) return device;
  shared_ = absl::StrCat(uuids.size(), " ranks share ",
                         FormatCount(static_cast<int64_t>(unlike.size()), "GPU"),
                         ", in turns: this shows that it works, not how fast it is");
  const bool nccl =
      options_.device_comm == DeviceComm::kNccl || options_.device_comm == DeviceComm::kPeers;
  if (nccl) TakeForHosts(mpi_->rank());
  return device;
}

void BenchRanks::ShareCores(int threads) {
  if (mpi_ == nullptr) return;
  for (plan::RankPlan& rank : plan_.ranks) rank.threads = threads;
  BindToCores(*mpi_, plan_).IgnoreError();
}

absl::Status BenchRanks::Connect(const RankDevice& device, bool deterministic) {
  if (mpi_ == nullptr) return absl::OkStatus();
  SKEIN_ASSIGN_OR_RETURN(
      groups_,
      MakeRankGroups(*mpi_, plan_, self(),
                     {.device = device.device.kind, .tracker = &tracker_, .timeout = kTimeout}));
  if (device.device.kind == DeviceKind::kCuda) {
    SKEIN_ASSIGN_OR_RETURN(
        groups_.copies,
        ConnectGpus({.asked = options_.device_comm,
                     .why_not_nccl = AgreeOnNccl(mpi_->world(), options_.device_comm, device),
                     .deterministic = deterministic,
                     .gpu = device.gpu,
                     .self = absl::StrCat("rank ", mpi_->rank()),
                     .timeout = kTimeout},
                    *mpi_, groups_.tp.get(), groups_.Hops()));
  }
  for (comm::Communicator* const group : groups_.view().All()) group->set_timeout(kTimeout);
  collectives_ = MakeCollectives(groups_.view());
  return absl::OkStatus();
}

absl::Status BenchRanks::Barrier() {
  return mpi_ == nullptr ? absl::OkStatus() : mpi_->world().Barrier(kHostStream);
}

absl::Status BenchRanks::Gather(absl::Span<const std::byte> mine, absl::Span<std::byte> all) {
  if (mpi_ != nullptr) return mpi_->world().AllGather(HostView(mine), HostView(all), kHostStream);
  std::copy(mine.begin(), mine.end(), all.begin());
  return absl::OkStatus();
}

absl::StatusOr<double> BenchRanks::LongestOfWhoDraw(double seconds) {
  std::vector<double> all(size());
  SKEIN_RETURN_IF_ERROR(
      Gather({reinterpret_cast<const std::byte*>(&seconds), sizeof(seconds)},
             {reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(double)}));
  double longest = 0;
  for (const plan::RankPlan& rank : plan_.ranks) {
    const bool draws = rank.tp_rank == 0 && rank.pp_rank + 1 == plan_.layout.pp_size;
    if (draws) longest = std::max(longest, all[rank.rank]);
  }
  return longest;
}

void BenchRanks::Abandon() { static_cast<void>(started_.release()); }

}  // namespace skein::worker

#include "worker/doctor/exchanges.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/bench/report.h"
#include "base/device_kind.h"
#include "base/device_timer.h"
#include "base/dtype.h"
#include "base/peer_sums.h"
#include "base/status_macros.h"
#include "base/stream.h"
#include "base/view.h"
#include "kernels/cuda/cuda_events.h"
#include "kernels/cuda/cuda_peer_sums.h"
#include "kernels/cuda/cuda_timer.h"
#include "parallel/comm/gather_strings.h"
#include "parallel/comm/nccl/nccl_transport.h"
#include "parallel/comm/p2p/crossover.h"
#include "parallel/comm/p2p/peer_transport.h"
#include "worker/device.h"
#include "worker/device_comm.h"
#include "worker/find_device.h"
#include "worker/probe/group_plan.h"

namespace skein::worker {
namespace {

constexpr int64_t kSmall = 1024;
constexpr int64_t kLarge = int64_t{1} << 20;
constexpr int64_t kSum = int64_t{64} << 20;
constexpr int kRounds = 5;                                // there and back
constexpr absl::Duration kLong = absl::Milliseconds(50);  // once is enough

class Exchanges {
 public:
  Exchanges(comm::MpiRuntime& mpi, absl::Duration timeout, topology::RankFacts& facts)
      : mpi_(mpi), timeout_(timeout), facts_(facts), places_(mpi) {}

  absl::Status Run() {
    mpi_.world().set_timeout(timeout_);
    SKEIN_RETURN_IF_ERROR(TimeWays());
    // Who is no host's first waits for those that are: a round may take as long as a call.
    mpi_.world().set_timeout(places_.hosts() * timeout_);
    SKEIN_RETURN_IF_ERROR(mpi_.world().Barrier(kHostStream));
    mpi_.world().set_timeout(3 * timeout_);  // for whom waits for NCCL, and gives up
    return TryGpus();
  }

 private:
  bool first_of_host() const { return places_.local[mpi_.rank()] == 0; }

  // Each two hosts' first ranks, while all others meet theirs.
  absl::Status TimeWays() {
    std::vector<int> firsts;
    for (int rank = 0; rank < mpi_.size(); ++rank) {
      if (places_.local[rank] == 0) firsts.push_back(rank);
    }
    if (places_.hosts() < 2 || !first_of_host()) return absl::OkStatus();
    const int host = places_.host[mpi_.rank()];
    for (int round = 0; round < places_.hosts() + places_.hosts() % 2 - 1; ++round) {
      const int other = PartnerIn(round, host, places_.hosts());
      if (other < 0) continue;
      topology::WayFacts way = {.rank = firsts[other]};
      SKEIN_RETURN_IF_ERROR(TimeWay(way.rank, 1).status());  // connects the two
      SKEIN_ASSIGN_OR_RETURN(const double small, TimeWay(way.rank, kSmall));
      SKEIN_ASSIGN_OR_RETURN(const double large, TimeWay(way.rank, kLarge));
      way.latency_us = small * 1e6;
      // Latency included, so that noise makes no rate up.
      way.bytes_per_s = static_cast<double>(kLarge) / large;
      if (host < other) facts_.ways.push_back(way);
    }
    return absl::OkStatus();
  }

  // Seconds of a message one way.
  absl::StatusOr<double> TimeWay(int other, int64_t bytes) {
    comm::Communicator& world = mpi_.world();
    std::vector<std::byte> data(bytes);
    const View view = HostView(absl::MakeSpan(data));
    std::vector<double> seconds;
    int32_t rounds = 1;
    for (int32_t i = 0; i < rounds; ++i) {
      const absl::Time begin = absl::Now();
      if (mpi_.rank() > other) SKEIN_RETURN_IF_ERROR(world.Receive(view, other, kHostStream));
      SKEIN_RETURN_IF_ERROR(world.Send(view, other, kHostStream));
      if (mpi_.rank() < other) SKEIN_RETURN_IF_ERROR(world.Receive(view, other, kHostStream));
      seconds.push_back(absl::ToDoubleSeconds(absl::Now() - begin) / 2);
      if (i > 0) continue;
      // The first round tells how many more both make.
      rounds = absl::Now() - begin < kLong ? kRounds : 1;
      const View told = HostView(absl::MakeSpan(&rounds, 1));
      SKEIN_RETURN_IF_ERROR(mpi_.rank() < other ? world.Send(told, other, kHostStream)
                                                : world.Receive(told, other, kHostStream));
    }
    SKEIN_RETURN_IF_ERROR(world.Flush(other));
    return Median(std::move(seconds));
  }

  absl::Status TryGpus() {
    if (mpi_.size() == 1) return absl::OkStatus();
    const absl::StatusOr<RankDevice> found =
        FindDevice(mpi_, /*asked=*/std::nullopt, /*oversubscribe=*/true);
    SKEIN_RETURN_IF_ERROR(mpi_.world().failure());
    RankDevice device;
    if (found.ok()) device = *found;
    const bool is_gpu = device.device.kind == DeviceKind::kCuda;
    SKEIN_ASSIGN_OR_RETURN(const auto any, comm::FirstText(mpi_.world(), is_gpu ? "GPU" : ""));
    if (!any) return absl::OkStatus();
    SKEIN_ASSIGN_OR_RETURN(const auto lacks,
                           comm::FirstText(mpi_.world(), std::string(found.status().message())));
    if (lacks) {
      facts_.no_nccl = absl::StrCat("rank ", lacks->rank, ": ", lacks->text);
      return absl::OkStatus();
    }
    SKEIN_ASSIGN_OR_RETURN(facts_.no_nccl, AgreeOnNccl(mpi_.world(), DeviceComm::kAuto, device));
    if (!facts_.no_nccl.empty()) return absl::OkStatus();
    SKEIN_RETURN_IF_ERROR(TryNccl(device));
    return TryPeers(device);
  }

  absl::Status TryNccl(const RankDevice& device) {
    SKEIN_ASSIGN_OR_RETURN(const auto group, mpi_.Split(0, mpi_.rank(), "doctor"));
    group->set_timeout(timeout_);
    const absl::StatusOr<double> seconds = TimeSum(device, *group);
    SKEIN_RETURN_IF_ERROR(mpi_.world().failure());
    SKEIN_ASSIGN_OR_RETURN(const std::optional<comm::RankText> error,
                           comm::FirstText(mpi_.world(), std::string(seconds.status().message())));
    if (error) {
      facts_.no_nccl = absl::StrCat("rank ", error->rank, ": ", error->text);
    } else {
      facts_.nccl_bytes_per_s = static_cast<double>(kSum) / *seconds;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> TimeSum(const RankDevice& device, comm::Communicator& group) {
    SKEIN_ASSIGN_OR_RETURN(std::shared_ptr<DeviceEvents> events,
                           kernels::MakeCudaEvents(device.gpu));
    SKEIN_ASSIGN_OR_RETURN(const auto nccl,
                           comm::MakeNcclTransport(group, absl::StrCat("rank ", mpi_.rank()),
                                                   std::move(events), timeout_));
    SKEIN_ASSIGN_OR_RETURN(const auto timer, kernels::MakeCudaTimer(device.gpu));
    SKEIN_ASSIGN_OR_RETURN(void* const memory, timer->Memory(kSum));
    const comm::Patience patience;
    const auto sum = [&](int64_t bytes) {
      return nccl->AllReduce({.operation = comm::Operation::kAllReduce, .bytes = bytes},
                             {memory, DType::kF32, 1, bytes / 4}, timer->stream(), patience);
    };
    const auto time = [&]() -> absl::StatusOr<comm::InGraph> {
      SKEIN_RETURN_IF_ERROR(sum(kSmall));  // connects ranks, which is nothing for a graph
      return comm::TimeInGraph(
          group, *timer, {.calls = 2, .timeout = timeout_}, [&] { return nccl->Check(); },
          [&] { return sum(kSum); });
    };
    const absl::StatusOr<comm::InGraph> timed = time();
    if (!timed.ok()) nccl->Abort();
    SKEIN_RETURN_IF_ERROR(timed.status());
    return timed->seconds;
  }

  absl::Status TryPeers(const RankDevice& device) {
    const int host = places_.host[mpi_.rank()];
    SKEIN_ASSIGN_OR_RETURN(const auto group, mpi_.Split(host, mpi_.rank(), "doctor's host"));
    group->set_timeout(timeout_);
    if (group->size() == 1) return absl::OkStatus();
    const auto sums = kernels::MakeCudaPeerSums(device.gpu, group->rank(), group->size());
    SKEIN_ASSIGN_OR_RETURN(facts_.no_peers, comm::OpenPeerSums(*group, absl::StrCat(host), sums));
    return facts_.no_peers.empty() ? comm::ClosePeerSums(*group, **sums) : absl::OkStatus();
  }

  comm::MpiRuntime& mpi_;
  const absl::Duration timeout_;
  topology::RankFacts& facts_;
  const Places places_;
};

}  // namespace

absl::Status TryExchanges(comm::MpiRuntime& mpi, absl::Duration timeout,
                          topology::RankFacts& facts) {
  return Exchanges(mpi, timeout, facts).Run();
}

}  // namespace skein::worker

// How ranks with GPUs exchange activations.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/device_copies.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "parallel/comm/nccl/nccl_transport.h"
#include "parallel/comm/p2p/peer_transport.h"
#include "worker/device.h"

namespace skein::worker {

enum class DeviceComm {
  // NCCL where every rank has a GPU of its own and the library, else as kHost. Sums go over peer
  // memory up to the size that is measured, where GPUs and processes reach each other's.
  kAuto,
  kNccl,   // NCCL alone, or an error
  kPeers,  // NCCL, and all sums that peer memory takes over it, unmeasured; or an error
  kHost,   // by way of the hosts' memory
};

// InvalidArgument for other than "auto", "nccl", "peers" and "host".
absl::StatusOr<DeviceComm> ParseDeviceComm(const std::string& text);
std::string_view DeviceCommName(DeviceComm comm);

// What a rank says of itself before all agree.
struct DeviceCommVote {
  std::string uuid;     // of its GPU
  std::string no_nccl;  // why this rank cannot use NCCL; empty where it can
};
// Returns why ranks, of which [i] is rank i's vote, exchange by way of the hosts' memory; empty
// where they do over NCCL. FailedPrecondition instead where NCCL is `asked` for. Pure.
absl::StatusOr<std::string> WhyNotNccl(DeviceComm asked, absl::Span<const DeviceCommVote> votes);

// Why a group whose ranks have `met` as MakeNcclTransport tells goes by way of the hosts' memory;
// empty where it does not. FailedPrecondition instead where NCCL is asked for. Other errors are its
// own. Pure.
absl::StatusOr<std::string> WhyRefused(DeviceComm asked, const absl::Status& met);

// A call of all ranks of a job, with each one's own device. `open` is asked where the library is
// needed. Returns, or fails, as WhyNotNccl, on all ranks alike.
absl::StatusOr<std::string> AgreeOnNccl(comm::Communicator& world, DeviceComm asked,
                                        const RankDevice& device,
                                        absl::FunctionRef<absl::Status()> open = comm::OpenNccl);

// Why sums of so many shards are no work for NCCL, of which hops may still be; empty where they
// are. FailedPrecondition instead where NCCL is asked for. Pure.
absl::StatusOr<std::string> WhyNoSums(DeviceComm asked, bool deterministic, int shards);

// What the log says of where a group's sums go, and why.
std::string DescribePeerSums(const std::string& group, const comm::PeerTransport& made);

// What a rank brings with it.
struct GpuEnd {
  DeviceComm asked = DeviceComm::kAuto;
  absl::StatusOr<std::string> why_not_nccl;  // AgreeOnNccl's
  bool deterministic = false;  // sums of several shards are a tree, which those of NCCL are not
  int gpu = 0;                 // CUDA's number
  std::string self;            // names the rank to the others: "rank 3 on node-b"
  absl::Duration timeout;
};

// Makes exchanges of `sums`, which may be null, and of `messages` between GPUs possible: over NCCL
// where all ranks of the job can and may (of sums also WhyNoSums), else by way of the hosts'
// memory, which is logged with its reason. A call of all ranks of the job, with the groups in the
// same order on all of their ranks; none has groups, or each has some. Errors are AgreeOnNccl's and
// MakeNcclTransport's; FailedPrecondition where peers are asked for and cannot be. What it returns
// outlives the groups.
absl::StatusOr<std::vector<std::unique_ptr<DeviceCopies>>> ConnectGpus(
    const GpuEnd& end, comm::MpiRuntime& mpi, comm::Communicator* sums,
    absl::Span<comm::Communicator* const> messages);

}  // namespace skein::worker

// The ranks that compute a model's benchmark together, as shards, stages and replicas.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/device_kind.h"
#include "kernels/ops/backend.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "parallel/comm/operation_tracker.h"
#include "parallel/plan/plan.h"
#include "worker/device.h"
#include "worker/device_comm.h"
#include "worker/rank_groups.h"

namespace skein::worker {

struct BenchRankOptions {
  bool started = false;                // by mpirun, maybe as one of several
  plan::LayoutRequest layout;          // empty: all ranks are shards of one stage
  bool oversubscribe_devices = false;  // DeviceChoice
  DeviceComm device_comm = DeviceComm::kAuto;
};

// Whether the ranks that mpirun started are a layout, and which. InvalidArgument, naming the flag,
// for another number of ranks. Pure.
absl::StatusOr<plan::Layout> LayoutOfBench(const plan::LayoutRequest& asked, int ranks);

// Any error is followed by Abandon, and by the process's end.
class BenchRanks {
 public:
  // A call of all ranks that mpirun started, where it did or a layout is asked for. Sets what
  // NCCL reads of the environment.
  static absl::StatusOr<std::unique_ptr<BenchRanks>> Start(const BenchRankOptions& options);

  // The ranks of a job that this process is in already, each with its place in `plan`: one of a
  // group, or idle. A call of all ranks; `mpi` outlives it.
  static std::unique_ptr<BenchRanks> Of(comm::MpiRuntime& mpi, plan::Plan plan,
                                        DeviceComm device_comm);

  const plan::Layout& layout() const { return plan_.layout; }
  const plan::RankPlan& self() const { return plan_.ranks[mpi_ == nullptr ? 0 : mpi_->rank()]; }
  int size() const { return plan_.layout.ranks(); }
  bool prints() const { return self().rank == 0; }
  // Chooses this rank's device as RankOptions does. A call of all ranks.
  absl::StatusOr<RankDevice> Find(std::optional<DeviceKind> asked);
  int local_size() const { return mpi_ == nullptr ? 1 : mpi_->local_size(); }
  // Binds ranks of so many threads as those of a job are bound, where the system allows it. A call
  // of all ranks.
  void ShareCores(int threads);
  // "2 ranks share a GPU: ..."; empty where each has a device of its own. Behind Find.
  const std::string& shared() const { return shared_; }

  // Makes the groups over which ranks with this device exchange. A call of all ranks.
  absl::Status Connect(const RankDevice& device, bool deterministic);
  StageGroups groups() const { return groups_.view(); }
  kernels::Collectives* collectives() const { return collectives_.get(); }

  absl::Status Barrier();
  // Every rank's `bytes`, by rank; all are as long.
  absl::Status Gather(absl::Span<const std::byte> mine, absl::Span<std::byte> all);
  // The longest seconds of a rank that draws: the first shard of the last stage of a replica. A
  // call of all ranks.
  absl::StatusOr<double> LongestOfWhoDraw(double seconds);

  comm::MpiRuntime& mpi() { return *mpi_; }  // where it was started
  // Leaves MPI as it is: nothing of it is waited for.
  void Abandon();

 private:
  explicit BenchRanks(const BenchRankOptions& options) : options_(options) {}

  const BenchRankOptions options_;
  std::unique_ptr<comm::MpiRuntime> started_;
  comm::MpiRuntime* mpi_ = nullptr;  // none: this process is alone
  plan::Plan plan_;                  // the layout, and the ranks' places
  comm::OperationTracker tracker_;
  RankGroups groups_;
  std::unique_ptr<kernels::Collectives> collectives_;
  std::string shared_;
};

}  // namespace skein::worker

// The groups over which a rank of a layout exchanges data.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/device_copies.h"
#include "base/device_kind.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/control/control_channel.h"
#include "parallel/comm/control/make_control_channel.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "parallel/comm/operation_tracker.h"
#include "parallel/plan/plan.h"
#include "worker/engine/stage_groups.h"

namespace skein::worker {

// Null where the rank is alone.
struct RankGroups {
  std::vector<std::unique_ptr<DeviceCopies>> copies;  // that the others use
  std::unique_ptr<comm::Communicator> tp;
  std::unique_ptr<comm::Communicator> previous;
  std::unique_ptr<comm::Communicator> next;
  std::unique_ptr<comm::Communicator> tokens;
  std::unique_ptr<comm::ControlChannel> control;  // where asked for

  StageGroups view() const { return {tp.get(), previous.get(), next.get(), tokens.get()}; }
  std::vector<comm::Communicator*> Hops() const {
    std::vector<comm::Communicator*> hops;
    for (comm::Communicator* const hop : {previous.get(), next.get()}) {
      if (hop != nullptr) hops.push_back(hop);
    }
    return hops;
  }
};

// How long a first stage of a GPU polls for tokens before it sleeps between polls: its device
// stands still until it has them, and ranks of GPUs have cores to spare. Longer than most steps.
inline constexpr absl::Duration kSpinForTokens = absl::Milliseconds(100);

struct RankGroupOptions {
  DeviceKind device = DeviceKind::kCpu;         // of all ranks
  comm::OperationTracker* tracker = nullptr;    // heartbeats tell of the groups' calls
  absl::Duration timeout;                       // of what ranks do to meet
  std::optional<comm::ControlOptions> control;  // none: nobody gives these ranks orders
  // Sees every group before its first call; may be null.
  std::function<void(comm::Communicator&)> on_group;
};

// A call of all ranks of the job, also of those without a part, which get no groups. Of the plan it
// takes the layout, and the ranks' places in it.
// Errors are those of MPI, and of the control channel.
absl::StatusOr<RankGroups> MakeRankGroups(comm::MpiRuntime& mpi, const plan::Plan& plan,
                                          const plan::RankPlan& self,
                                          const RankGroupOptions& options);

}  // namespace skein::worker

// The two loops that ranks of a replica run: the leader's loop decides, the followers' loops obey.
#pragma once

#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "parallel/comm/control/control_channel.h"
#include "worker/engine/inbox.h"
#include "worker/engine/replica_state.h"
#include "worker/engine/stage.h"
#include "worker/engine/step_watch.h"
#include "worker/engine/thread_beats.h"

namespace skein::worker {

struct LeaderOptions {
  ReplicaLimits limits;
  // Limits a step's time; unset: ten times what it should take, at least 30 s. See ResultWatch.
  std::optional<absl::Duration> step_timeout;
  // Called when a step takes longer, before RunLeader waits for its threads, of which one may be
  // stuck for ever: a process ends here. May be null.
  std::function<void(const absl::Status&)> on_stuck;
  // Called with an error before the other ranks can notice it. May be null.
  std::function<void(const absl::Status&)> on_failure;
  // So many steps are planned and sent before the oldest one's result is known, it included. 2: one
  // runs, and the next one is there when it ends; more would only make newcomers wait. 1: steps do
  // not overlap, to compare with.
  int64_t orders_ahead = 2;
  // The bytes of the model's weights, over all ranks of the replica, tell what the first steps may
  // take.
  int64_t model_bytes = StepTimes::kUnknownModelBytes;
  // Gets signs of life of the threads that schedule and listen; may be null.
  ThreadBeats* beats = nullptr;
  // Gets every report, on the engine's thread; a slow sink slows the replica.
  std::function<void(StepReport)> report;
};

// Serves the inbox until it is stopped, then tells the followers to stop, and returns OK. Any
// error means that the replica is lost. `channel` is null where the replica has one rank.
absl::Status RunLeader(const LeaderOptions& options, Stage& stage, comm::ControlChannel* channel,
                       Inbox& inbox);

// Carries out the leader's orders until it says stop, and hears the next ones meanwhile. Tells the
// leader of a step's error, then returns it. A leader that is gone ends the step in hand, too.
absl::Status RunFollower(Stage& stage, comm::ControlChannel& channel, absl::Duration step_timeout);

}  // namespace skein::worker

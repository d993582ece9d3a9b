// A back end that is out of step with the host, as a device with a queue is. It breaks what holds
// only because other back ends run batches as they are enqueued.
#pragma once

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "kernels/ops/backend.h"

namespace skein::kernels {

struct LateOptions {
  // A batch begins so long after it was enqueued, or once somebody waits for it without an end.
  absl::Duration delay = absl::Milliseconds(1);
  // Called before each batch begins, on the executable's thread; may be null.
  std::function<void(const Batch&)> before_batch;
  // What a batch ends with that its waits tell, instead of running; OK: it runs. May be null.
  std::function<absl::Status(const Batch&)> fault;
  // Called as a batch is enqueued, on the caller's thread; may be null.
  std::function<void()> on_enqueue;
  // Called in WarmUp, which ends with its error, once the shards have met; may be null.
  std::function<absl::Status()> on_warm_up;
};

// Runs what `inner` does, on a thread of its own.
std::unique_ptr<Executable> MakeLateExecutable(std::unique_ptr<Executable> inner,
                                               LateOptions options = {});

// Its executables are late. In WarmUp the shards of a Program that sums over them meet, as where
// collectives are captured: one that stays away holds up the others.
std::unique_ptr<Backend> MakeLateBackend(std::unique_ptr<Backend> inner, LateOptions options = {});

}  // namespace skein::kernels

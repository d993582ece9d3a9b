// Does one rank's part of every step, as the schedule lists it: receives activations, runs its
// layers, sends them on. A micro-batch is filled into a batch of the executable, which draws the
// tokens, too; TokenRelay carries them to the first stage.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/program.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "worker/engine/stage_groups.h"
#include "worker/engine/step_order.h"
#include "worker/engine/step_watch.h"
#include "worker/engine/token_relay.h"

namespace skein::worker {

// Tells when a stage computed a micro-batch; waiting for activations is outside.
struct TraceEvent {
  int64_t step = 0;
  int32_t stage = 0;
  int32_t micro_batch = 0;
  absl::Time begin;
  absl::Time end;
};

struct StageOptions {
  int32_t tp_size = 1;
  int32_t pp_size = 1;
  int32_t pp_rank = 0;
  int32_t tp_rank = 0;
  int32_t slots = 1;  // the executable's
  StageGroups groups;

  StepWatch* watch = nullptr;  // told of every step; may be null
  // Hears a step's error before other ranks can notice it; may be null.
  std::function<void(const absl::Status&)> on_failure;

  std::function<void(const TraceEvent&)> trace;  // may be null
  // Sees this shard's logits of every sampled row, on ranks of the last stage; may be null. It
  // works only over an executable whose memory is the host's.
  std::function<void(int32_t slot, absl::Span<const float>)> observe_logits;
};

// One rank owns it and one thread uses it, except Abort.
class Stage {
 public:
  // `executable` runs `program` and outlives the stage, as do the groups.
  Stage(const StageOptions& options, const kernels::Program& program,
        kernels::Executable* executable);

  bool reports() const { return options_.tp_rank == 0 && is_last(); }

  // Warms the executable up, and sends a first message over each hop between devices, which
  // connects its ends. Every rank of the replica calls it once, before its first step.
  absl::Status WarmUp();

  // Carries out the order as far as it goes without waiting for the executable. It waits where no
  // batch is free, and for other ranks. Up to kernels::Executable::kBatches steps may be under way.
  // An error, which Finish tells, aborts what this rank has to do with others.
  void Begin(StepOrder order);
  int64_t under_way() const { return static_cast<int64_t>(steps_.size()); }
  // Returns the result of the oldest step under way, of which there is one; none when it is not
  // over by the deadline. The sampling rank's result has what was sampled; every rank's has the
  // step and the status: an error means that the replica cannot go on (a lost peer, a broken
  // order).
  std::optional<StepResult> Finish(absl::Time deadline);
  // Begins and finishes the step, where none is under way.
  StepResult Run(StepOrder order);

  // Makes what is under way fail with `why`, also while it waits for a peer. Any thread.
  void Abort(const absl::Status& why);

 private:
  struct Step {
    StepResult result;
    int64_t batches = 0;  // under way
  };
  struct Running {
    kernels::Ticket ticket = 0;
    int batch = 0;
    schedule::MicroBatchId what;
    absl::Time begin;
    Step* step = nullptr;
  };

  bool is_first() const { return options_.pp_rank == 0; }
  bool is_last() const { return options_.pp_rank == options_.pp_size - 1; }

  void Fail(const absl::Status& why);
  absl::Status CheckSlots(const StepOrder& order) const;
  absl::Status CarryOut(StepOrder& order, Step& step);
  // Returns an order's micro-batches as the schedule needs them: the tokens that each waits for.
  std::vector<schedule::MicroBatch> MicroBatchDependencies(const StepOrder& order) const;
  absl::Status CarryOut(const schedule::Instruction& instruction, StepOrder& order, Step& step);

  absl::Status TakeBatch(const schedule::MicroBatchId& what);
  absl::Status Compute(const schedule::MicroBatchId& what, StepOrder& order,
                       const std::vector<ChunkOrder>& chunks, Step& step);
  void Fill(StepOrder& order, const std::vector<ChunkOrder>& chunks);
  void ShowLogits(const std::vector<ChunkOrder>& chunks);
  absl::Status Receive(int64_t rows);
  absl::Status Send(int64_t rows);
  absl::Status SendTokens();
  // Takes in the result of the oldest batch under way; false when it is not over by the deadline.
  absl::StatusOr<bool> Collect(absl::Time deadline);
  absl::Status CollectAll();

  const StageOptions options_;
  const kernels::Program& program_;
  kernels::Executable* const executable_;
  TokenRelay tokens_;
  std::deque<Step> steps_;
  std::deque<Running> running_;  // batches, the oldest one first
  // The micro-batch in hand has this batch from what it receives to what it sends.
  std::optional<schedule::MicroBatchId> in_hand_;
  int batch_ = 0;
  absl::Status failed_;  // nothing more is run after an error
};

}  // namespace skein::worker

// One rank's part of every step, as the schedule lists it: receives activations, runs its layers,
// sends them on; the first shard of the last stage samples. What the micro-batches compute is made
// by InputBatches, tokens are drawn by RowSampler, and carried to the first stage by TokenRelay.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/program.h"
#include "parallel/schedule/schedule.h"
#include "worker/engine/input_batches.h"
#include "worker/engine/row_sampler.h"
#include "worker/engine/stage_groups.h"
#include "worker/engine/step_order.h"
#include "worker/engine/step_watch.h"
#include "worker/engine/token_relay.h"

namespace skein::worker {

// When a stage computed a micro-batch; waiting for activations is outside.
struct TraceEvent {
  int64_t step = 0;
  int32_t stage = 0;
  int32_t micro_batch = 0;
  absl::Time begin;
  absl::Time end;
};

struct StageOptions {
  int32_t tensor = 1;
  int32_t pipeline = 1;
  int32_t stage = 0;
  int32_t shard = 0;
  int64_t vocab_size = 0;
  int64_t page_size = 0;

  // The rank's pages, and where they are swapped to; null in a rank whose orders copy none.
  kernels::KvCache* kv = nullptr;
  kernels::KvCache* swap = nullptr;

  StageGroups groups;

  StepWatch* watch = nullptr;  // told of every step; may be null

  std::function<void(const TraceEvent&)> trace;  // may be null
  RowSampler::Observer observe_logits;           // on the sampling rank; may be null
};

// Owned by one rank and used by one thread, except Abort.
class Stage {
 public:
  // `executable` runs `program` and outlives the stage, as do the caches and groups.
  Stage(const StageOptions& options, const kernels::Program& program,
        kernels::Executable* executable);

  bool samples() const { return options_.shard == 0 && is_last(); }

  // Carries out the order. The sampling rank's result has what was sampled; every rank's has the
  // step and the status: an error means that the replica cannot go on (a lost peer, a broken
  // order).
  StepResult Run(const StepOrder& order);

  // Makes Run fail with `why`, also while it waits for a peer. Any thread.
  void Abort(const absl::Status& why);

 private:
  bool is_first() const { return options_.stage == 0; }
  bool is_last() const { return options_.stage == options_.pipeline - 1; }

  absl::Status RunOrder(const StepOrder& order, StepResult* result);
  std::vector<schedule::MicroBatch> PlanMicroBatches(const StepOrder& order) const;
  absl::Status CarryOut(const schedule::Instruction& instruction,
                        const std::vector<ChunkOrder>& chunks, StepResult* result);
  absl::Status Compute(const schedule::MicroBatchId& id, const std::vector<ChunkOrder>& chunks);
  void Sample(const std::vector<ChunkOrder>& chunks, StepResult* result);
  absl::Status Receive(int64_t rows);
  absl::Status Send(int64_t rows);

  const StageOptions options_;
  const kernels::Program& program_;
  kernels::Executable* const executable_;
  InputBatches batches_;
  TokenRelay tokens_;
  RowSampler sampler_;
};

}  // namespace skein::worker

// One rank's part of every step: receives activations, runs its layers, sends them on; the first
// shard of the last stage samples, and sends the tokens to the first stage, which goes on with
// them in the next step without waiting for the leader.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/program.h"
#include "parallel/comm/communicator.h"
#include "parallel/schedule/schedule.h"
#include "worker/engine/step_order.h"
#include "worker/engine/step_watch.h"

namespace skein::worker {

// When a stage computed a micro-batch; waiting for activations is outside.
struct TraceEvent {
  int64_t step = 0;
  int32_t stage = 0;
  int32_t micro_batch = 0;
  absl::Time begin;
  absl::Time end;
};

// The ranks that a stage exchanges data with. Each way has a communicator of its own, so that
// none waits behind another one's traffic. Null where there is nobody.
struct StageGroups {
  comm::Communicator* tensor = nullptr;    // the stage's shards, by shard
  comm::Communicator* previous = nullptr;  // the same shard of the stage before, and this rank
  comm::Communicator* next = nullptr;      // this rank, and the same shard of the stage behind
  // Sampled tokens: the first stage, by shard, and behind it the sampling rank where that is of
  // another stage.
  comm::Communicator* tokens = nullptr;

  std::vector<comm::Communicator*> All() const;
};

struct StageOptions {
  int32_t tensor = 1;
  int32_t pipeline = 1;
  int32_t stage = 0;
  int32_t shard = 0;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t page_size = 0;

  // The rank's pages, and where they are swapped to; null in a rank whose orders copy none.
  kernels::KvCache* kv = nullptr;
  kernels::KvCache* swap = nullptr;

  StageGroups groups;

  StepWatch* watch = nullptr;  // told of every step; may be null

  std::function<void(const TraceEvent&)> trace;  // may be null
  // Sees the logits [vocab_size] of every sampled row, on the sampling rank; may be null.
  std::function<void(SequenceId, int64_t position, absl::Span<const float>)> observe_logits;
};

// Owned by one rank and used by one thread, except Abort.
class Stage {
 public:
  // `executable` runs `program` and outlives the stage, as do the caches and groups.
  Stage(const StageOptions& options, const kernels::Program& program,
        kernels::Executable* executable);
  ~Stage();

  bool samples() const { return options_.shard == 0 && is_last(); }

  // Carries out the order. The sampling rank's result has what was sampled; every rank's has the
  // step and the status: an error means that the replica cannot go on (a lost peer, a broken
  // order).
  StepResult Run(const StepOrder& order);

  // Makes Run fail with `why`, also while it waits for a peer. Any thread.
  void Abort(const absl::Status& why);

 private:
  struct Sequence {
    std::vector<int32_t> pages;
    // On the first stage: the token that was sampled last, and the message that brings a newer one.
    int32_t sampled = 0;
    int64_t awaited = 0;
    // On the sampling rank.
    std::vector<int32_t> prompt;
    std::vector<int32_t> output;
    std::optional<float> mu;
    kernels::SamplingParams sampling;
  };
  struct BatchBuffers;

  bool is_first() const { return options_.stage == 0; }
  bool is_last() const { return options_.stage == options_.pipeline - 1; }
  // Its rank in the tokens' group.
  int sampling_rank() const { return options_.pipeline == 1 ? 0 : options_.tensor; }

  absl::Status UpdateSequences(const StepOrder& order);
  absl::Status CopyPages(const std::vector<PageCopy>& copies);
  absl::StatusOr<Sequence*> Find(SequenceId id);

  absl::Status RunOrder(const StepOrder& order, StepResult* result);
  std::vector<schedule::MicroBatch> PlanMicroBatches(const StepOrder& order);
  absl::Status CarryOut(const schedule::Instruction& instruction,
                        const std::vector<ChunkOrder>& chunks, StepResult* result);
  absl::Status Compute(const schedule::MicroBatchId& id, const std::vector<ChunkOrder>& chunks);
  absl::Status FillBatch(const std::vector<ChunkOrder>& chunks);
  absl::Status AddRows(const ChunkOrder& chunk, Sequence& sequence);
  absl::Status Receive(int64_t rows);
  absl::Status Send(int64_t rows);

  void Sample(const std::vector<ChunkOrder>& chunks, StepResult* result);
  SampledRow SampleRow(const ChunkOrder& chunk, int64_t output_row);
  PromptLogprobs LogprobsOfPrompt(const ChunkOrder& chunk, int64_t first_output);
  absl::Span<const float> Logits(int64_t output_row) const;

  // The way of sampled tokens, one message per micro-batch, from the sampling rank to the others of
  // the first stage.
  absl::Status SendTokens();
  void ExpectTokens(const schedule::MicroBatchId& id, const std::vector<ChunkOrder>& chunks);
  absl::Status ReceiveTokens(int64_t until);

  const StageOptions options_;
  const kernels::Program& program_;
  kernels::Executable* const executable_;
  std::unique_ptr<kernels::Collectives> collectives_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::unique_ptr<BatchBuffers> batch_;  // kept between steps to reuse its memory

  std::vector<int32_t> sampled_tokens_;  // of the last micro-batch, on the sampling rank
  // Messages of tokens on their way to this rank: whose they are, and from which micro-batch.
  struct TokensDue {
    schedule::MicroBatchId from;
    std::vector<SequenceId> ids;
  };
  std::deque<TokensDue> tokens_due_;
  int64_t tokens_expected_ = 0;     // messages, ever
  int64_t last_step_messages_ = 0;  // of them, the last step's
};

}  // namespace skein::worker

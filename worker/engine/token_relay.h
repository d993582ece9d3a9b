// Carries sampled tokens through a pipeline: from the sampling rank (the first shard of the last
// stage) to the ranks of the first stage, one message per micro-batch that draws tokens. The first
// stage goes on with them in the next step, without waiting for the leader. A stage that is alone
// has drawn them itself, on every shard.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/ops/backend.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "worker/engine/step_order.h"

namespace skein::worker {

// Not thread-safe.
class TokenRelay {
 public:
  struct Options {
    int32_t tp_size = 1;
    int32_t slots = 1;
    comm::Communicator* group = nullptr;        // StageGroups::tokens
    kernels::Executable* executable = nullptr;  // is told the tokens; may be null where none come
  };

  explicit TokenRelay(const Options& options) : options_(options), awaited_(options.slots) {}

  void BeginStep() { expected_before_ = expected_; }
  // Returns what each micro-batch of the order feeds on (schedule::MicroBatch::feeds_on).
  std::vector<std::vector<schedule::MicroBatchId>> FeedsOn(const StepOrder& order) const;
  void EndStep() { last_step_messages_ = expected_ - expected_before_; }

  // Called on the sampling rank with a micro-batch's tokens, in the order of its sampling chunks.
  absl::Status Send(absl::Span<const int32_t> tokens);

  // Called on the first stage: the tokens that the micro-batch draws are on their way.
  void Expect(const schedule::MicroBatchId& from, const std::vector<ChunkOrder>& chunks);
  // Takes in the oldest message that is expected.
  absl::Status Receive();
  // Receives until the chunks' newest tokens are there.
  absl::Status Await(const std::vector<ChunkOrder>& chunks);

 private:
  // A message on its way to this rank comes from this micro-batch, with tokens of these slots.
  struct Due {
    schedule::MicroBatchId from;
    std::vector<int32_t> slots;
  };

  int source_rank() const { return options_.tp_size; }  // its rank in the group
  int64_t received() const { return expected_ - static_cast<int64_t>(due_.size()); }
  // Returns the message, counted from 1, that the chunk's newest token comes with; 0: it is there.
  int64_t AwaitedBy(const ChunkOrder& chunk) const;
  absl::Status ReceiveUntil(int64_t messages);

  const Options options_;
  std::vector<int64_t> awaited_;  // [slots]: the message that brings the newest token
  std::deque<Due> due_;
  int64_t expected_ = 0;            // messages so far
  int64_t expected_before_ = 0;     // messages before this step
  int64_t last_step_messages_ = 0;  // messages of the last step
};

}  // namespace skein::worker

// The way of sampled tokens: from the sampling rank (the first shard of the last stage) to the
// other ranks of the first stage, one message per micro-batch that samples. The first stage goes on
// with them in the next step, without waiting for the leader.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parallel/comm/communicator.h"
#include "parallel/schedule/schedule.h"
#include "worker/engine/step_order.h"

namespace skein::worker {

// Not thread-safe.
class TokenRelay {
 public:
  struct Options {
    int32_t tensor = 1;
    int32_t pipeline = 1;
    comm::Communicator* group = nullptr;  // StageGroups::tokens
  };

  explicit TokenRelay(const Options& options) : options_(options) {}

  // Forgets the sequences that ended. In a stage that is alone, takes in what is left of earlier
  // steps.
  absl::Status BeginStep(const StepOrder& order);
  // What each micro-batch of the order feeds on (schedule::MicroBatch::feeds_on).
  std::vector<std::vector<schedule::MicroBatchId>> FeedsOn(const StepOrder& order) const;
  void EndStep();

  // On the sampling rank: what the micro-batch's sampling chunks gave, in their order.
  void Take(const std::vector<ChunkOrder>& chunks, absl::Span<const int32_t> tokens);
  // Sends what was taken last, if anything.
  absl::Status Send();

  // On the first stage's other ranks: what the micro-batch samples is on its way.
  void Expect(const schedule::MicroBatchId& from, const std::vector<ChunkOrder>& chunks);
  // Takes in the oldest message that is expected.
  absl::Status Receive();

  // On the first stage: the sequence's last token. Receives until it is there.
  absl::StatusOr<int32_t> Newest(SequenceId id);

 private:
  struct LastToken {
    int32_t token = 0;
    int64_t awaited = 0;  // the message, counted from 1, that brings a newer one
  };
  // A message on its way to this rank: whose tokens it has, and from which micro-batch.
  struct Due {
    schedule::MicroBatchId from;
    std::vector<SequenceId> ids;
  };

  // Its rank in the group.
  int sampling_rank() const { return options_.pipeline == 1 ? 0 : options_.tensor; }
  int64_t received() const { return expected_ - static_cast<int64_t>(due_.size()); }
  absl::Status ReceiveUntil(int64_t messages);

  const Options options_;
  std::unordered_map<SequenceId, LastToken> last_;
  std::vector<int32_t> taken_;  // of the last micro-batch, on the sampling rank
  std::deque<Due> due_;
  int64_t expected_ = 0;            // messages, ever
  int64_t expected_before_ = 0;     // of them, before this step
  int64_t last_step_messages_ = 0;  // of them, the last step's
};

}  // namespace skein::worker

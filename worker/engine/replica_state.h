// The leader's view of its replica: which sequences wait and run, and which pages they hold. It
// does no I/O and has no threads: orders go out, results come in.
//
// Orders run ahead: the next one may be made while results of the one before are outstanding. A
// sequence whose token is not known yet goes on with kNewestToken; when that token turns out to
// have been its last, the surplus one is dropped.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "serving/output.h"
#include "serving/request.h"
#include "worker/engine/page_tables.h"
#include "worker/engine/replica_limits.h"
#include "worker/engine/step_order.h"
#include "worker/engine/step_report.h"
#include "worker/scheduler/schedule.h"

namespace skein::worker {

// Not thread-safe.
class ReplicaState {
 public:
  explicit ReplicaState(const ReplicaLimits& limits);
  ~ReplicaState();

  // Queues the request. One that can never run (empty, too long, tokens outside of the vocabulary,
  // more answers than run at once) becomes kFailed outputs.
  void Add(serving::Request request, absl::Time now);
  // Frees the slots and pages of the request, or of one answer of it, at once and gives a
  // kCancelled output. Ignores a request or answer that is not there, since it ended meanwhile; so,
  // too, an answer whose prompt is yet to be shared, of which nothing can be known that would end
  // it.
  void Cancel(serving::RequestId id, std::optional<int32_t> answer = std::nullopt);
  // Forgets every request without outputs.
  void CancelAll();

  // Tells that nothing waits or runs; results may be outstanding.
  bool idle() const { return sequences_.empty(); }
  // Counts orders whose results were not applied yet.
  int64_t outstanding() const { return static_cast<int64_t>(outstanding_.size()); }
  // Returns the rows of the oldest of them; 0 where there is none.
  int64_t rows() const { return outstanding_.empty() ? 0 : outstanding_.front().rows(); }

  // Returns the next step's order; none where nothing can be done before a result comes. Internal
  // when the scheduler broke its contract.
  absl::StatusOr<std::optional<StepOrder>> NextOrder(absl::Time now);
  // Takes in the result of the oldest outstanding order, which took `duration`. Internal when it
  // does not match.
  absl::Status Apply(const StepResult& result, absl::Duration duration);

  // Returns the outputs since the last call, and the load.
  StepReport TakeReport();
  bool has_outputs() const { return !outputs_.empty(); }

 private:
  struct Sequence {
    SequenceId id;
    std::shared_ptr<const serving::Request> request;  // shared by its answers
    absl::Time arrival;
    int32_t answer = 0;           // index
    std::optional<float> mu;      // serving::AnswerStart::mu
    std::vector<int32_t> tokens;  // prompt and what is known of the answer
    int64_t in_flight = 0;        // tokens to come from outstanding orders
    int64_t computed = 0;         // tokens whose keys and values orders have put into the pages
    PageTable table;
    // kForking: the answer gets its prompt from another one, whose prompt is not computed yet.
    enum class State : uint8_t { kWaiting, kRunning, kForking } state = State::kWaiting;
    std::vector<SequenceId> forks;  // answers that wait for this one
    int32_t slot = -1;              // with the ranks; while it, or the one that it waits for, runs
    int64_t slot_length = 0;        // the slot's length, as the ranks have it after the last order
    PrefixCache::Hit hit;           // what a waiting one finds in the cache,
    uint64_t hit_version = 0;       // in this version of it
    std::optional<int64_t> cached;  // of the prompt, when it first ran; 0 once it was told
    // The prompt's log probabilities were given up to this position; -1: nobody asks.
    int64_t logprobs_given = -1;
    // Of the prompt's rows that were pooled since it was computed for the `passes`-th time.
    kernels::PooledRows pooled;
    int32_t passes = 0;

    int64_t prompt() const { return static_cast<int64_t>(request->prompt.size()); }
    int64_t known() const { return static_cast<int64_t>(tokens.size()); }
    int64_t length() const { return known() + in_flight; }
    int64_t max_length() const { return prompt() + request->max_tokens; }
    // Tells whether a row at `position` gives log probabilities of the prompt.
    bool wants_logprobs(int64_t position) const {
      return logprobs_given >= 0 && position + 1 < prompt();
    }
    // Tells whether the prefix cache can spare it nothing.
    bool needs_all_rows() const {
      return logprobs_given >= 0 || request->pooling == serving::Pooling::kMean;
    }
    int32_t slots() const { return 1 + static_cast<int32_t>(forks.size()); }
  };
  // A sequence that an order works on, in the slot that it has there.
  struct Worked {
    int32_t slot = 0;
    SequenceId id;
    bool draws = false;
    int32_t pass = 0;  // Sequence::passes
  };
  struct Outstanding {
    int64_t step = 0;
    serving::PromptSteps counts;  // of this step
    SequenceId last_prompt;       // of those counted
    std::vector<Worked> chunks;

    int64_t rows() const { return counts.decodes + counts.rows; }
    bool decodes_alone() const { return rows() > 0 && counts.rows == 0; }
    // Chunks of one prompt, which are in several micro-batches, follow each other.
    void Count(const Chunk& chunk, bool all_logits);
  };

  Sequence& NewSequence(std::shared_ptr<const serving::Request> request,
                        const serving::AnswerStart& start, absl::Time now);
  SequenceView ViewOf(Sequence& sequence);
  StepPlan Plan(absl::Time now);

  absl::Status Preempt(const Preemption& preemption, StepOrder& order);
  void TakeSlot(Sequence& sequence, StepOrder& order);
  void GiveSlotBack(Sequence& sequence);
  absl::Status Admit(Sequence& sequence, StepOrder& order);
  absl::Status Compute(const Chunk& chunk, StepOrder& order, std::vector<ChunkOrder>& batch);
  void Fork(Sequence& parent);

  void CountStep(const Outstanding& step, absl::Duration duration);
  void ApplyRow(Sequence& sequence, const kernels::SampledTokens& row);
  void ApplyLogprobs(Sequence& sequence, const kernels::PromptLogprobs& piece);
  // The chunk that the slot had in the step; Internal when it had none.
  static absl::StatusOr<const Worked*> ChunkOf(const Outstanding& step, int32_t slot);
  Sequence* Find(SequenceId id);
  void KeepPrefix(Sequence& sequence);
  serving::Finish FinishOf(const Sequence& sequence) const;
  void End(Sequence& sequence);
  void EndRequest(serving::RequestId id);

  const ReplicaLimits limits_;
  PreemptionRates rates_;
  bool prefill_observed_ = false;
  PageTables tables_;
  // Ids are in the order in which sequences came.
  std::map<SequenceId, Sequence> sequences_;
  std::map<serving::RequestId, std::vector<SequenceId>> requests_;
  SequenceId next_id_{1};
  std::vector<int32_t> free_slots_;  // the last one is taken next
  std::deque<Outstanding> outstanding_;
  std::vector<serving::AnswerOutput> outputs_;
  serving::ReplicaLoad counters_;  // only its counters are used
};

}  // namespace skein::worker

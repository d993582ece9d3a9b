// The leader's view of its replica: which sequences wait and run, and which pages they hold. No
// I/O and no threads: orders out, results in.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/engine/request.h"
#include "worker/engine/step_order.h"
#include "worker/kv/page_pool.h"
#include "worker/scheduler/scheduler.h"

namespace skein::worker {

struct ReplicaLimits {
  SchedulerLimits scheduler;
  int64_t pages = 0;
  int64_t context_length = 0;
  int64_t vocab_size = 0;
};

// Not thread-safe.
class ReplicaState {
 public:
  explicit ReplicaState(const ReplicaLimits& limits);

  // Queues the request; one that can never run (empty, too long, tokens outside of the vocabulary)
  // becomes a kFailed output.
  void Add(GenerationRequest request);
  // Frees the request's slot and pages at once and gives a kCancelled output; unknown ids, which
  // are requests that ended meanwhile, are ignored.
  void Cancel(RequestId id);
  // Forgets every request without outputs.
  void CancelAll();

  bool idle() const { return waiting_.empty() && running_.empty(); }

  // The next step's order; idle() is false.
  StepOrder NextOrder();
  // What the order's sampling chunks gave. Internal when they do not match the order.
  absl::Status Apply(const std::vector<SampledRow>& sampled);

  // Outputs since the last call, and the load.
  StepReport TakeReport();
  bool has_outputs() const { return !outputs_.empty(); }

 private:
  struct Sequence {
    GenerationRequest request;
    std::vector<int32_t> pages;
    int64_t computed = 0;  // tokens with keys and values in the cache

    int64_t length() const {
      return static_cast<int64_t>(request.prompt.size() + request.output.size());
    }
    int32_t token(int64_t position) const;
    SequenceView View() const;
  };

  absl::Status Validate(const GenerationRequest& request) const;
  Finish FinishOf(const Sequence& sequence) const;
  SequenceStart Start(Sequence& sequence, int64_t pages);
  void Release(const Sequence& sequence);

  const ReplicaLimits limits_;
  PagePool pool_;
  std::deque<Sequence> waiting_;   // in order of arrival
  std::vector<Sequence> running_;  // in order of admission
  std::vector<RequestId> ended_;   // since the last order
  std::vector<SequenceOutput> outputs_;
  int64_t steps_ = 0;
};

}  // namespace skein::worker

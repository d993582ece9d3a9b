// A whole replica in one process: every rank of a layout as a thread, over in-process
// communicators. For tests of what layouts compute.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/device_copies.h"
#include "base/device_kind.h"
#include "base/mutex.h"
#include "kernels/ops/backend.h"
#include "kernels/packing/layout.h"
#include "model/config/model_config.h"
#include "model/format/tensor_source.h"
#include "parallel/comm/operation_tracker.h"
#include "parallel/plan/plan.h"
#include "worker/engine/replica_state.h"
#include "worker/engine/stage.h"
#include "worker/engine/stage_groups.h"

namespace skein::worker {

struct LocalReplicaOptions {
  plan::Layout layout;         // one replica: data is 1
  int64_t context_length = 0;  // RankProgramSpec's
  int64_t page_size = 16;
  int64_t pages = 256;
  int64_t swap_pages = 0;
  kernels::KvDType kv_dtype = kernels::KvDType::kF32;
  DType hop_dtype = DType::kF32;
  bool deterministic = false;
  bool exact = false;
  DeviceKind device = DeviceKind::kCpu;
  int32_t max_num_seqs = 8;
  PreemptionRates rates;
  int orders_ahead = 2;  // that are planned, and begun, before the oldest one's result is there
  int64_t max_rows = 256;
  bool observe = true;  // logits are kept; every micro-batch is waited for
  std::function<std::unique_ptr<kernels::Backend>()> make_backend;  // one a rank
  // One for each group of a rank; null where ranks compute on the host.
  std::function<std::unique_ptr<DeviceCopies>()> make_copies;
  std::function<void(const TraceEvent&)> trace;  // may be null
};

class LocalReplica {
 public:
  // `tensors` outlives the replica.
  static absl::StatusOr<std::unique_ptr<LocalReplica>> Create(const model::ModelConfig& config,
                                                              const model::TensorSource& tensors,
                                                              const LocalReplicaOptions& options);
  ~LocalReplica();

  // All ranks begin with the order at once. An error of a rank, Finish tells.
  void Begin(const StepOrder& order);
  // Of the oldest step under way: the sampling rank's result, or the first error of any rank.
  absl::StatusOr<StepResult> Finish();
  // All ranks' steps fail. Any thread.
  void Abort(const absl::Status& why);
  // Begin and Finish.
  absl::StatusOr<StepResult> Run(const StepOrder& order);

  using Answers = std::map<std::pair<serving::RequestId, int32_t>, std::vector<int32_t>>;
  // Serves the requests to their end, `scheduler` deciding; answers by request and index. Starts
  // with an empty prefix cache.
  absl::StatusOr<Answers> Generate(const std::vector<serving::Request>& requests,
                                   SchedulerLimits scheduler);
  // Further requests, after Generate, to the same leader: its prefix cache and its counters are
  // kept.
  absl::StatusOr<Answers> GenerateMore(const std::vector<serving::Request>& requests);
  // After the last step of either.
  const serving::ReplicaLoad& load() const { return load_; }
  const std::map<serving::RequestId, std::vector<serving::SampledToken>>& prompt_logprobs() const {
    return prompt_logprobs_;
  }
  // The answers' tokens with all that is told of them.
  using Sampled =
      std::map<std::pair<serving::RequestId, int32_t>, std::vector<serving::SampledToken>>;
  const Sampled& sampled() const { return sampled_; }

  // What the rank is doing, as its heartbeats would tell it. Ranks of a stage are neighbours.
  comm::Progress progress(int rank) const;

  // What the first rank sent to the next stage so far.
  int64_t hop_bytes() const { return hop_bytes_; }

  // What the orders of Generate did.
  struct Seen {
    int64_t surplus_tokens = 0;  // drawn for sequences that had ended
    int64_t retaken_pages = 0;   // swapped out, and another's in the same order
    int64_t retaken_slots = 0;   // by another sequence, in an order that began behind one with it
  };
  const Seen& seen() const { return seen_; }

  // The logits of every sampled row so far, by answer and position. An order given to Run is of
  // answer {0, slot}.
  using AnswerId = std::pair<serving::RequestId, int32_t>;
  using Logits = std::map<std::pair<AnswerId, int64_t>, std::vector<float>>;
  // Between steps, when nobody writes.
  const Logits& logits() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return logits_; }

 private:
  struct Rank;
  struct Slot {
    std::vector<int32_t> prompt;
    std::vector<AnswerId> answers;  // alike in everything, so that their logits are the same
    int64_t length = 0;
  };
  LocalReplica() = default;
  // Calls fn(rank) for all of them at once.
  void OnRanks(const std::function<void(int)>& fn);
  void Note(const StepOrder& order, bool behind_another);
  // Keeps account of the slots, as ranks do.
  void Follow(const StepOrder& order);
  std::vector<AnswerId> AnswersOf(const kernels::SlotStart& start) const;
  static void Connect(const plan::Layout& layout, const std::vector<std::unique_ptr<Rank>>& ranks);

  model::ModelConfig config_;
  LocalReplicaOptions options_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<ReplicaState> state_;     // since the last Generate
  std::vector<serving::Request> requests_;  // of the last Generate or GenerateMore
  std::map<int32_t, Slot> slots_;
  Mutex mutex_;  // shards observe at once
  Logits logits_ ABSL_GUARDED_BY(mutex_);
  Seen seen_;
  std::atomic<int64_t> hop_bytes_ = 0;
  std::set<int32_t> worked_;  // slots, by the last order
  std::map<serving::RequestId, std::vector<serving::SampledToken>> prompt_logprobs_;
  Sampled sampled_;
  serving::ReplicaLoad load_;
};

}  // namespace skein::worker

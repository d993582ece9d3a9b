// A small replica for tests of ReplicaState, without ranks: a test says what they answer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/test_util.h"
#include "worker/engine/replica_state.h"

namespace skein::worker {

inline constexpr int32_t kEosId = 9;

inline ReplicaLimits Limits() {
  return {.scheduler = {.step_tokens = 8,
                        .micro_batches = 1,
                        .max_micro_batch_rows = 8,
                        .page_size = 4},
          .max_sequences = 2,
          .pages = 10,
          .context_length = 40,
          .vocab_size = 100};
}

inline GenerationRequest Request(RequestId id, std::vector<int32_t> prompt, int64_t max_tokens) {
  return {
      .id = id, .prompt = std::move(prompt), .max_tokens = max_tokens, .eos_token_ids = {kEosId}};
}

// A state, and ranks that answer what a test tells them to.
class Replica {
 public:
  explicit Replica(const ReplicaLimits& limits = Limits())
      : state(limits), page_size_(limits.scheduler.page_size) {}

  void Add(GenerationRequest request) { state.Add(std::move(request), now); }
  StepOrder Next() {
    now += absl::Milliseconds(1);
    const absl::StatusOr<std::optional<StepOrder>> order = state.NextOrder(now);
    EXPECT_THAT(order.status(), IsOk());
    EXPECT_TRUE(order.ok() && order->has_value()) << "nothing to do";
    if (!order.ok() || !order->has_value()) return {};
    CheckPages(**order);
    return **order;
  }
  bool HasNext() { return state.NextOrder(now)->has_value(); }
  // Every sampling chunk of the order gives `token`.
  void Finish(const StepOrder& order, int32_t token = 50,
              absl::Duration duration = absl::Milliseconds(1)) {
    StepResult result{.step = order.step};
    for (const auto& batch : order.micro_batches) {
      for (const ChunkOrder& chunk : batch) {
        if (chunk.sample) result.sampled.push_back({.id = chunk.id, .token = {.id = token}});
      }
    }
    SKEIN_ASSERT_OK(state.Apply(result, duration));
  }
  StepOrder Step(int32_t token = 50) {
    StepOrder order = Next();
    Finish(order, token);
    return order;
  }

  ReplicaState state;
  absl::Time now = absl::UnixEpoch();

 private:
  // A sequence wastes its last page's empty slots at most.
  void CheckPages(const StepOrder& order) {
    for (const PageTableUpdate& table : order.tables) {
      pages_[table.id] = table.first + static_cast<int64_t>(table.pages.size());
    }
    std::map<SequenceId, int64_t> computed;
    for (const auto& batch : order.micro_batches) {
      for (const ChunkOrder& chunk : batch) computed[chunk.id] = chunk.end();
    }
    for (const auto& [id, tokens] : computed) {
      EXPECT_EQ(pages_[id], (tokens + page_size_ - 1) / page_size_) << "sequence " << id;
    }
  }

  const int64_t page_size_;
  std::map<SequenceId, int64_t> pages_;
};

}  // namespace skein::worker

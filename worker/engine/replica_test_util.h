// Gives tests of ReplicaState a small replica without ranks: a test says what they answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/test_util.h"
#include "worker/engine/replica_state.h"

namespace skein::worker {

inline constexpr int32_t kEosId = 9;

inline ReplicaLimits Limits() {
  return {.scheduler = {.max_num_batched_tokens = 8,
                        .micro_batches = 1,
                        .max_micro_batch_rows = 8,
                        .page_size = 4},
          .max_num_seqs = 2,
          .pages = 10,
          .context_length = 40,
          .vocab_size = 100};
}

inline serving::Request Request(uint64_t id, std::vector<int32_t> prompt, int32_t max_tokens) {
  return {.id = serving::RequestId(id),
          .prompt = std::move(prompt),
          .max_tokens = max_tokens,
          .eos_token_ids = {kEosId}};
}

// A state with ranks that answer what a test tells them to.
class Replica {
 public:
  explicit Replica(const ReplicaLimits& limits = Limits())
      : state(limits), page_size_(limits.scheduler.page_size) {}

  void Add(serving::Request request) { state.Add(std::move(request), now); }
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
  // Makes every sampling chunk of the order give `token`.
  void Finish(const StepOrder& order, int32_t token = 50,
              absl::Duration duration = absl::Milliseconds(1)) {
    StepResult result{.step = order.step};
    for (const auto& batch : order.micro_batches) {
      for (const ChunkOrder& chunk : batch) {
        if (chunk.draws) {
          result.sampled.push_back({.slot = chunk.slot, .tokens = {{.id = token}}});
        }
      }
    }
    SKEIN_ASSERT_OK(state.Apply(result, duration));
  }
  StepOrder Step(int32_t token = 50) {
    StepOrder order = Next();
    Finish(order, token);
    return order;
  }

  // Returns the position of the first token, [micro-batch][chunk].
  const std::vector<std::vector<int64_t>>& Begins(const StepOrder& order) const {
    return begins_.at(order.step);
  }

  ReplicaState state;
  absl::Time now = absl::UnixEpoch();

 private:
  // A slot as a rank keeps it.
  struct Slot {
    int64_t length = 0;
    int64_t pages = 0;
  };

  // Checks that a sequence wastes its last page's empty positions at most.
  void CheckPages(const StepOrder& order) {
    for (const kernels::SlotStart& start : order.starts) slots_[start.slot] = {};
    for (const kernels::SlotUpdate& update : order.updates) {
      Slot& slot = slots_[update.slot];
      const int64_t length = update.length.value_or(slot.length);
      if (length < slot.length) slot.pages = std::min(slot.pages, PagesOf(length));
      slot.length = length;
      if (update.pages.empty()) continue;
      EXPECT_LE(update.first_page, slot.pages) << "slot " << update.slot;
      slot.pages = update.first_page + static_cast<int64_t>(update.pages.size());
    }
    std::set<int32_t> worked;
    for (const auto& batch : order.micro_batches) {
      std::vector<int64_t>& begins = begins_[order.step].emplace_back();
      for (const ChunkOrder& chunk : batch) {
        begins.push_back(slots_[chunk.slot].length);
        slots_[chunk.slot].length += chunk.rows();
        worked.insert(chunk.slot);
      }
    }
    for (int32_t slot : worked) {
      EXPECT_EQ(slots_[slot].pages, PagesOf(slots_[slot].length)) << "slot " << slot;
    }
  }
  int64_t PagesOf(int64_t length) const { return (length + page_size_ - 1) / page_size_; }

  const int64_t page_size_;
  std::map<int32_t, Slot> slots_;
  std::map<int64_t, std::vector<std::vector<int64_t>>> begins_;  // by step
};

}  // namespace skein::worker

#include "worker/engine/token_relay.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/status_macros.h"
#include "base/stream.h"

namespace skein::worker {

absl::Status TokenRelay::BeginStep(const StepOrder& order) {
  for (SequenceId id : order.ended) last_.erase(id);
  if (options_.pipeline == 1) SKEIN_RETURN_IF_ERROR(ReceiveUntil(expected_ - last_step_messages_));
  expected_before_ = expected_;
  return absl::OkStatus();
}

void TokenRelay::EndStep() { last_step_messages_ = expected_ - expected_before_; }

std::vector<std::vector<schedule::MicroBatchId>> TokenRelay::FeedsOn(const StepOrder& order) const {
  // The leader has all results but those of the last step, so the tokens before have been sent:
  // they are taken, also where nobody goes on with them, so that they do not pile up.
  int64_t until = expected_ - last_step_messages_;
  int64_t taken = received();
  std::vector<std::vector<schedule::MicroBatchId>> feeds;
  for (const std::vector<ChunkOrder>& chunks : order.micro_batches) {
    std::vector<schedule::MicroBatchId>& feeds_on = feeds.emplace_back();
    for (const ChunkOrder& chunk : chunks) {
      const auto it = last_.find(chunk.id);
      if (it != last_.end() && !chunk.tokens.empty() && chunk.tokens.back() == kSampledToken) {
        until = std::max(until, it->second.awaited);
      }
    }
    for (; taken < until; ++taken) feeds_on.push_back(due_[taken - received()].from);
  }
  return feeds;
}

void TokenRelay::Take(const std::vector<ChunkOrder>& chunks, absl::Span<const int32_t> tokens) {
  taken_.assign(tokens.begin(), tokens.end());
  size_t next = 0;
  for (const ChunkOrder& chunk : chunks) {
    if (chunk.sample) last_[chunk.id].token = taken_[next++];
  }
}

absl::Status TokenRelay::Send() {
  if (taken_.empty()) return absl::OkStatus();
  const comm::ConstBytes bytes = {reinterpret_cast<const std::byte*>(taken_.data()),
                                  taken_.size() * sizeof(int32_t)};
  for (int32_t shard = 0; shard < options_.tensor; ++shard) {
    if (shard == sampling_rank()) continue;  // this one
    SKEIN_RETURN_IF_ERROR(options_.group->Send(bytes, shard, kHostStream));
  }
  return absl::OkStatus();
}

void TokenRelay::Expect(const schedule::MicroBatchId& from, const std::vector<ChunkOrder>& chunks) {
  Due due{.from = from};
  for (const ChunkOrder& chunk : chunks) {
    if (!chunk.sample) continue;
    due.ids.push_back(chunk.id);
    last_[chunk.id].awaited = expected_ + 1;
  }
  if (due.ids.empty()) return;
  due_.push_back(std::move(due));
  ++expected_;
}

absl::Status TokenRelay::Receive() { return ReceiveUntil(received() + 1); }

absl::Status TokenRelay::ReceiveUntil(int64_t messages) {
  while (received() < messages) {
    const std::vector<SequenceId> ids = std::move(due_.front().ids);
    due_.pop_front();
    std::vector<int32_t> tokens(ids.size());
    SKEIN_RETURN_IF_ERROR(options_.group->Receive(
        {reinterpret_cast<std::byte*>(tokens.data()), tokens.size() * sizeof(int32_t)},
        sampling_rank(), kHostStream));
    for (size_t i = 0; i < ids.size(); ++i) {
      // It may have ended meanwhile.
      if (const auto it = last_.find(ids[i]); it != last_.end()) it->second.token = tokens[i];
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int32_t> TokenRelay::Newest(SequenceId id) {
  SKEIN_RETURN_IF_ERROR(ReceiveUntil(last_[id].awaited));
  return last_[id].token;
}

}  // namespace skein::worker

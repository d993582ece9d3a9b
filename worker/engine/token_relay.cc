#include "worker/engine/token_relay.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "base/stream.h"
#include "base/view.h"

namespace skein::worker {

int64_t TokenRelay::AwaitedBy(const ChunkOrder& chunk) const {
  const bool waits = !chunk.tokens.empty() && chunk.tokens.back() == kernels::kNewestToken;
  return waits ? awaited_[chunk.slot] : 0;
}

std::vector<std::vector<schedule::MicroBatchId>> TokenRelay::FeedsOn(const StepOrder& order) const {
  // The leader has all results but those of the last step, so the tokens before have been sent:
  // they are taken, also where nobody goes on with them, so that they do not pile up.
  int64_t until = expected_ - last_step_messages_;
  int64_t taken = received();
  std::vector<std::vector<schedule::MicroBatchId>> feeds;
  for (const std::vector<ChunkOrder>& chunks : order.micro_batches) {
    std::vector<schedule::MicroBatchId>& feeds_on = feeds.emplace_back();
    for (const ChunkOrder& chunk : chunks) until = std::max(until, AwaitedBy(chunk));
    for (; taken < until; ++taken) feeds_on.push_back(due_[taken - received()].from);
  }
  return feeds;
}

absl::Status TokenRelay::Send(absl::Span<const int32_t> tokens) {
  if (tokens.empty()) return absl::OkStatus();
  for (int32_t shard = 0; shard < options_.tp_size; ++shard) {
    SKEIN_RETURN_IF_ERROR(options_.group->Send(HostView(tokens), shard, kHostStream));
  }
  return absl::OkStatus();
}

void TokenRelay::Expect(const schedule::MicroBatchId& from, const std::vector<ChunkOrder>& chunks) {
  Due due{.from = from};
  for (const ChunkOrder& chunk : chunks) {
    if (!chunk.draws) continue;
    due.slots.push_back(chunk.slot);
    awaited_[chunk.slot] = expected_ + 1;
  }
  if (due.slots.empty()) return;
  due_.push_back(std::move(due));
  ++expected_;
}

absl::Status TokenRelay::Receive() { return ReceiveUntil(received() + 1); }

absl::Status TokenRelay::ReceiveUntil(int64_t messages) {
  while (received() < messages) {
    const std::vector<int32_t> slots = std::move(due_.front().slots);
    due_.pop_front();
    std::vector<int32_t> tokens(slots.size());
    SKEIN_RETURN_IF_ERROR(
        options_.group->Receive(HostView(absl::MakeSpan(tokens)), source_rank(), kHostStream));
    // Another sequence that has the slot by now asks for none before its own come, behind these.
    options_.executable->SetTokens(slots, tokens);
  }
  return absl::OkStatus();
}

absl::Status TokenRelay::Await(const std::vector<ChunkOrder>& chunks) {
  int64_t messages = 0;
  for (const ChunkOrder& chunk : chunks) messages = std::max(messages, AwaitedBy(chunk));
  return ReceiveUntil(messages);
}

}  // namespace skein::worker

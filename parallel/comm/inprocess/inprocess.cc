#include "parallel/comm/inprocess/inprocess.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "parallel/comm/call.h"
#include "parallel/comm/tree_sum.h"

namespace skein::comm {
namespace {

// A sender runs ahead of its receiver by this much: a few micro-batches of activations.
constexpr size_t kSendWindowBytes = size_t{16} << 20;

using Bytes = std::vector<std::byte>;

// What one rank shows to the others. Written under the group's mutex before its phase moves on.
struct Slot {
  int64_t phase = 0;  // collective phases that the rank has reached
  Call call;
  const std::byte* in = nullptr;
  std::vector<float> part;  // an all-reduce's own part, summed
};

struct Mailbox {
  std::deque<Bytes> messages;
  size_t bytes = 0;
  int64_t received = 0;
};

// All members under `mutex`, except that a rank which passed a phase reads the others' slots
// and buffers without it; `readers` counts those, and no rank returns an error before it is 0.
struct Group {
  Group(int size, std::string name) : name(std::move(name)), slots(size), mail(size * size) {}

  const std::string name;
  // Of std, which the thread sanitizer sees; the system's abseil is not built for it.
  std::mutex mutex;
  std::condition_variable_any changed;
  absl::Status failure;
  int readers = 0;
  std::vector<Slot> slots;
  std::vector<Mailbox> mail;  // [from * size + to]
};

class InProcessCommunicator final : public Communicator {
 public:
  InProcessCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank), size_(static_cast<int>(group_->slots.size())) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view name() const override { return group_->name; }
  void set_timeout(absl::Duration timeout) override { timeout_ = timeout; }
  int64_t calls() const override { return calls_; }

  absl::Status AllReduce(absl::Span<float> data, Stream) override;
  absl::Status AllGather(absl::Span<const std::byte> in, absl::Span<std::byte> out,
                         Stream) override;
  absl::Status ReduceScatter(absl::Span<const float> in, absl::Span<float> out, Stream) override;
  absl::Status Broadcast(absl::Span<std::byte> data, int root, Stream) override;
  absl::Status Send(absl::Span<const std::byte> data, int to, Stream) override;
  absl::Status Receive(absl::Span<std::byte> data, int from, Stream) override;
  absl::Status Barrier(Stream) override;
  void Abort(absl::Status why) override { Fail(std::move(why)).IgnoreError(); }

 private:
  // Shows this rank's call and waits until all ranks have shown the same one.
  absl::Status Enter(Operation operation, const void* in, int64_t bytes, int peer = 0);
  // Waits until all ranks have come this far in the call. No deadline: whoever entered comes.
  absl::Status Meet();
  absl::Status Fail(absl::Status why);
  // With the mutex held, as the next three.
  absl::Status AwaitPhase(absl::Time deadline);
  absl::Status FailLocked(absl::Status why);
  // Waits for a change; true once the deadline has passed.
  bool WaitExpired(absl::Time deadline);
  // Sums elements [begin, end) of all ranks' inputs.
  void SumInputs(Range range, float* out) const;

  const std::shared_ptr<Group> group_;
  const int rank_;
  const int size_;
  absl::Duration timeout_ = absl::InfiniteDuration();
  int64_t calls_ = 0;
};

absl::Status InProcessCommunicator::Fail(absl::Status why) {
  std::lock_guard lock(group_->mutex);
  return FailLocked(std::move(why));
}

// The first failure counts. Waits for ranks that still read buffers, as they never wait themselves.
absl::Status InProcessCommunicator::FailLocked(absl::Status why) {
  if (group_->failure.ok()) group_->failure = std::move(why);
  group_->changed.notify_all();
  while (group_->readers > 0) group_->changed.wait(group_->mutex);
  return group_->failure;
}

bool InProcessCommunicator::WaitExpired(absl::Time deadline) {
  return group_->changed.wait_until(group_->mutex, absl::ToChronoTime(deadline)) ==
         std::cv_status::timeout;
}

absl::Status InProcessCommunicator::AwaitPhase(absl::Time deadline) {
  Slot& mine = group_->slots[rank_];
  const int64_t phase = ++mine.phase;
  group_->changed.notify_all();
  const auto behind = [&] {
    std::vector<int> ranks;
    for (int peer = 0; peer < size_; ++peer) {
      if (group_->slots[peer].phase < phase) ranks.push_back(peer);
    }
    return ranks;
  };
  bool expired = false;
  while (group_->failure.ok()) {
    const std::vector<int> missing = behind();
    if (missing.empty()) return absl::OkStatus();
    if (expired) {
      return FailLocked(NeverEntered(missing, mine.call, group_->name, timeout_));
    }
    expired = WaitExpired(deadline);
  }
  return FailLocked({});
}

absl::Status InProcessCommunicator::Enter(Operation operation, const void* in, int64_t bytes,
                                          int peer) {
  const absl::Time deadline = absl::Now() + timeout_;
  std::lock_guard lock(group_->mutex);
  if (!group_->failure.ok()) return FailLocked({});
  Slot& mine = group_->slots[rank_];
  mine.call = {operation, peer, ++calls_, bytes};
  mine.in = static_cast<const std::byte*>(in);
  SKEIN_RETURN_IF_ERROR(AwaitPhase(deadline));
  for (int other = 0; other < size_; ++other) {
    const Call& theirs = group_->slots[other].call;
    if (theirs != mine.call) {
      return FailLocked(Mismatch(rank_, mine.call, other, theirs, group_->name));
    }
  }
  ++group_->readers;
  return absl::OkStatus();
}

absl::Status InProcessCommunicator::Meet() {
  std::lock_guard lock(group_->mutex);
  --group_->readers;
  return AwaitPhase(absl::InfiniteFuture());
}

void InProcessCommunicator::SumInputs(Range range, float* out) const {
  std::vector<const float*> inputs;
  for (const Slot& slot : group_->slots) {
    inputs.push_back(reinterpret_cast<const float*>(slot.in) + range.begin);
  }
  TreeSum(inputs, range.size(), out);
}

absl::Status InProcessCommunicator::AllReduce(absl::Span<float> data, Stream) {
  const int64_t count = data.size();
  std::vector<float>& part = group_->slots[rank_].part;
  SKEIN_RETURN_IF_ERROR(Enter(Operation::kAllReduce, data.data(), data.size() * sizeof(float)));
  const Range own = PartOf(count, rank_, size_);
  part.resize(own.size());
  SumInputs(own, part.data());
  SKEIN_RETURN_IF_ERROR(Meet());
  {
    std::lock_guard lock(group_->mutex);
    if (!group_->failure.ok()) return FailLocked({});
    ++group_->readers;
  }
  for (int peer = 0; peer < size_; ++peer) {
    const Range range = PartOf(count, peer, size_);
    if (!range.empty()) {
      std::copy_n(group_->slots[peer].part.begin(), range.size(), data.begin() + range.begin);
    }
  }
  return Meet();
}

absl::Status InProcessCommunicator::AllGather(absl::Span<const std::byte> in,
                                              absl::Span<std::byte> out, Stream) {
  if (absl::Status fits = CheckAllGather(in.size(), out.size(), size_, name()); !fits.ok()) {
    return Fail(fits);
  }
  SKEIN_RETURN_IF_ERROR(Enter(Operation::kAllGather, in.data(), in.size()));
  for (int peer = 0; peer < size_ && !in.empty(); ++peer) {
    std::memcpy(&out[peer * in.size()], group_->slots[peer].in, in.size());
  }
  return Meet();
}

absl::Status InProcessCommunicator::ReduceScatter(absl::Span<const float> in, absl::Span<float> out,
                                                  Stream) {
  if (absl::Status fits = CheckReduceScatter(in.size(), out.size(), size_, name()); !fits.ok()) {
    return Fail(fits);
  }
  SKEIN_RETURN_IF_ERROR(Enter(Operation::kReduceScatter, in.data(), in.size() * sizeof(float)));
  SumInputs(PartOf(in.size(), rank_, size_), out.data());
  return Meet();
}

absl::Status InProcessCommunicator::Broadcast(absl::Span<std::byte> data, int root, Stream) {
  if (absl::Status fits = CheckRank(root, size_, -1, "root of a broadcast", name()); !fits.ok()) {
    return Fail(fits);
  }
  SKEIN_RETURN_IF_ERROR(Enter(Operation::kBroadcast, data.data(), data.size(), root));
  if (rank_ != root && !data.empty()) {
    std::memcpy(data.data(), group_->slots[root].in, data.size());
  }
  return Meet();
}

absl::Status InProcessCommunicator::Barrier(Stream) {
  SKEIN_RETURN_IF_ERROR(Enter(Operation::kBarrier, nullptr, 0));
  return Meet();
}

absl::Status InProcessCommunicator::Send(absl::Span<const std::byte> data, int to, Stream) {
  if (absl::Status fits = CheckRank(to, size_, rank_, "receiver", name()); !fits.ok()) {
    return Fail(fits);
  }
  Bytes message(data.begin(), data.end());
  const absl::Time deadline = absl::Now() + timeout_;
  std::lock_guard lock(group_->mutex);
  Mailbox& box = group_->mail[rank_ * size_ + to];
  bool expired = false;
  while (group_->failure.ok()) {
    if (box.messages.empty() || box.bytes + message.size() <= kSendWindowBytes) {
      box.bytes += message.size();
      box.messages.push_back(std::move(message));
      group_->changed.notify_all();
      return absl::OkStatus();
    }
    if (expired) {
      const Call next = {Operation::kReceive, rank_, box.received + 1, 0};
      return FailLocked(NeverEntered({to}, next, group_->name, timeout_));
    }
    expired = WaitExpired(deadline);
  }
  return FailLocked({});
}

absl::Status InProcessCommunicator::Receive(absl::Span<std::byte> data, int from, Stream) {
  if (absl::Status fits = CheckRank(from, size_, rank_, "sender", name()); !fits.ok()) {
    return Fail(fits);
  }
  const absl::Time deadline = absl::Now() + timeout_;
  std::lock_guard lock(group_->mutex);
  Mailbox& box = group_->mail[from * size_ + rank_];
  const int64_t bytes = data.size();
  const Call call = {Operation::kReceive, from, ++box.received, bytes};
  Call send = {Operation::kSend, rank_, box.received, bytes};  // that this call waits for
  bool expired = false;
  while (group_->failure.ok()) {
    if (!box.messages.empty()) {
      const Bytes message = std::move(box.messages.front());
      box.messages.pop_front();
      box.bytes -= message.size();
      group_->changed.notify_all();
      if (message.size() != data.size()) {
        send.bytes = message.size();
        return FailLocked(Mismatch(rank_, call, from, send, group_->name));
      }
      std::copy(message.begin(), message.end(), data.begin());
      return absl::OkStatus();
    }
    if (expired) return FailLocked(NeverEntered({from}, send, group_->name, timeout_));
    expired = WaitExpired(deadline);
  }
  return FailLocked({});
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeInProcessGroup(int size, std::string name) {
  auto group = std::make_shared<Group>(size, std::move(name));
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<InProcessCommunicator>(group, rank));
  }
  return ranks;
}

}  // namespace skein::comm

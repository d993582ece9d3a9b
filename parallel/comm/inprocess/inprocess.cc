#include "parallel/comm/inprocess/inprocess.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "parallel/comm/call.h"
#include "parallel/comm/tree_sum.h"

namespace skein::comm {
namespace {

// A sender runs ahead of its receiver by this much: a few micro-batches of activations.
constexpr size_t kSendWindowBytes = size_t{16} << 20;

using Message = std::vector<std::byte>;

// What one rank shows to the others. Written under the group's mutex before its phase moves on.
struct Slot {
  int64_t phase = 0;  // collective phases that the rank has reached
  Call call;
  const std::byte* in = nullptr;
  std::vector<float> part;  // an all-reduce's own part, summed
};

struct Mailbox {
  std::deque<Message> messages;
  size_t bytes = 0;
  int64_t received = 0;  // the last receive that was entered
};

// Slots change under the mutex, too, but a rank that passed a phase reads the others' slots and
// buffers without it; `readers` counts those, and no rank returns an error before it is 0.
struct Group {
  Group(int size, std::string name) : name(std::move(name)), slots(size), mail(size * size) {}

  const std::string name;
  Mutex mutex;
  CondVar changed;
  absl::Status failure ABSL_GUARDED_BY(mutex);
  int readers ABSL_GUARDED_BY(mutex) = 0;
  std::vector<Slot> slots;
  std::vector<Mailbox> mail ABSL_GUARDED_BY(mutex);  // [from * size + to]
};

class InProcessCommunicator final : public Communicator {
 public:
  InProcessCommunicator(std::shared_ptr<Group> group, int rank)
      : Communicator(group->name, rank, static_cast<int>(group->slots.size())),
        group_(std::move(group)) {}

 private:
  bool DoSumsAsTree() const override { return true; }
  absl::Status DoAllReduce(const Call& call, View data, Stream) override;
  absl::Status DoAllGather(const Call& call, ConstView in, View out, Stream) override;
  absl::Status DoBroadcast(const Call& call, View data, Stream) override;
  absl::Status DoBarrier(const Call& call, Stream) override;
  absl::Status DoSend(const Call& call, ConstView data, Stream) override;
  absl::Status DoReceive(const Call& call, View data, Stream) override;
  void DoAbort() override;

  // Shows this rank's call and waits until all ranks have shown the same one.
  absl::Status Enter(const Call& call, const void* in);
  // Waits until all ranks have come this far in the call. No deadline: whoever entered comes.
  absl::Status Meet();
  absl::Status AwaitPhase(SteadyTime deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(group_->mutex);
  absl::Status FailLocked(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(group_->mutex);
  // Waits for a change; true once the deadline has passed.
  bool WaitExpired(SteadyTime deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(group_->mutex);
  // Sums elements [begin, end) of all ranks' inputs.
  void SumInputs(Range range, float* out) const;

  const std::shared_ptr<Group> group_;
};

void InProcessCommunicator::DoAbort() {
  MutexLock lock(&group_->mutex);
  FailLocked(failure()).IgnoreError();
}

// The first failure counts. Waits for ranks that still read buffers, as they never wait themselves.
absl::Status InProcessCommunicator::FailLocked(absl::Status why) {
  if (group_->failure.ok()) group_->failure = std::move(why);
  group_->changed.NotifyAll();
  while (group_->readers > 0) group_->changed.Wait(&group_->mutex);
  return group_->failure;
}

bool InProcessCommunicator::WaitExpired(SteadyTime deadline) {
  const int64_t begin_ns = Pulse::NowNs();
  const bool expired = !group_->changed.WaitUntil(&group_->mutex, deadline);
  if (patience().clock != nullptr) patience().clock->AddWaited(Pulse::NowNs() - begin_ns);
  return expired;
}

absl::Status InProcessCommunicator::AwaitPhase(SteadyTime deadline) {
  Slot& mine = group_->slots[rank()];
  const int64_t phase = ++mine.phase;
  group_->changed.NotifyAll();
  const auto behind = [&] {
    std::vector<int> ranks;
    for (int peer = 0; peer < size(); ++peer) {
      if (group_->slots[peer].phase < phase) ranks.push_back(peer);
    }
    return ranks;
  };
  bool expired = false;
  while (group_->failure.ok()) {
    const std::vector<int> missing = behind();
    if (missing.empty()) return absl::OkStatus();
    if (expired) {
      return FailLocked(NeverEntered(missing, mine.call, name(), patience().timeout));
    }
    expired = WaitExpired(deadline);
  }
  return FailLocked({});
}

absl::Status InProcessCommunicator::Enter(const Call& call, const void* in) {
  MutexLock lock(&group_->mutex);
  if (!group_->failure.ok()) return FailLocked({});
  Slot& mine = group_->slots[rank()];
  mine.call = call;
  mine.in = static_cast<const std::byte*>(in);
  SKEIN_RETURN_IF_ERROR(AwaitPhase(patience().deadline));
  for (int other = 0; other < size(); ++other) {
    const Call& theirs = group_->slots[other].call;
    if (theirs != mine.call) {
      return FailLocked(Mismatch(rank(), mine.call, other, theirs, name()));
    }
  }
  ++group_->readers;
  return absl::OkStatus();
}

absl::Status InProcessCommunicator::Meet() {
  MutexLock lock(&group_->mutex);
  --group_->readers;
  return AwaitPhase(SteadyTime::max());
}

void InProcessCommunicator::SumInputs(Range range, float* out) const {
  std::vector<const float*> inputs;
  for (const Slot& slot : group_->slots) {
    inputs.push_back(reinterpret_cast<const float*>(slot.in) + range.begin);
  }
  TreeSum(inputs, range.size(), out);
}

absl::Status InProcessCommunicator::DoAllReduce(const Call& call, View data, Stream) {
  SKEIN_RETURN_IF_ERROR(CheckSum(data.dtype, DType::kF32, name()));
  const int64_t count = data.elements();
  float* const floats = static_cast<float*>(data.data);
  std::vector<float>& part = group_->slots[rank()].part;
  SKEIN_RETURN_IF_ERROR(Enter(call, floats));
  const Range own = PartOf(count, rank(), size());
  part.resize(own.size());
  SumInputs(own, part.data());
  SKEIN_RETURN_IF_ERROR(Meet());
  {
    MutexLock lock(&group_->mutex);
    if (!group_->failure.ok()) return FailLocked({});
    ++group_->readers;
  }
  for (int peer = 0; peer < size(); ++peer) {
    const Range range = PartOf(count, peer, size());
    if (!range.empty()) {
      std::copy_n(group_->slots[peer].part.begin(), range.size(), floats + range.begin);
    }
  }
  return Meet();
}

absl::Status InProcessCommunicator::DoAllGather(const Call& call, ConstView in, View out, Stream) {
  SKEIN_RETURN_IF_ERROR(Enter(call, in.data));
  const int64_t bytes = in.bytes();
  for (int peer = 0; peer < size() && bytes > 0; ++peer) {
    std::memcpy(HostBytes(out).data() + peer * bytes, group_->slots[peer].in, bytes);
  }
  return Meet();
}

absl::Status InProcessCommunicator::DoBroadcast(const Call& call, View data, Stream) {
  SKEIN_RETURN_IF_ERROR(Enter(call, data.data));
  if (rank() != call.peer && data.bytes() > 0) {
    std::memcpy(data.data, group_->slots[call.peer].in, data.bytes());
  }
  return Meet();
}

absl::Status InProcessCommunicator::DoBarrier(const Call& call, Stream) {
  SKEIN_RETURN_IF_ERROR(Enter(call, nullptr));
  return Meet();
}

absl::Status InProcessCommunicator::DoSend(const Call& call, ConstView data, Stream) {
  const absl::Span<const std::byte> bytes = HostBytes(data);
  Message message(bytes.begin(), bytes.end());
  MutexLock lock(&group_->mutex);
  Mailbox& box = group_->mail[rank() * size() + call.peer];
  bool expired = false;
  while (group_->failure.ok()) {
    if (box.messages.empty() || box.bytes + message.size() <= kSendWindowBytes) {
      box.bytes += message.size();
      box.messages.push_back(std::move(message));
      group_->changed.NotifyAll();
      return absl::OkStatus();
    }
    if (expired) {
      const Call next = {Operation::kReceive, rank(), box.received + 1, 0};
      return FailLocked(NeverEntered({call.peer}, next, name(), patience().timeout));
    }
    expired = WaitExpired(patience().deadline);
  }
  return FailLocked({});
}

absl::Status InProcessCommunicator::DoReceive(const Call& call, View data, Stream) {
  const int from = call.peer;
  MutexLock lock(&group_->mutex);
  Mailbox& box = group_->mail[from * size() + rank()];
  box.received = call.number;
  Call send = {Operation::kSend, rank(), call.number, call.bytes};  // that this call waits for
  bool expired = false;
  while (group_->failure.ok()) {
    if (!box.messages.empty()) {
      const Message message = std::move(box.messages.front());
      box.messages.pop_front();
      box.bytes -= message.size();
      group_->changed.NotifyAll();
      if (static_cast<int64_t>(message.size()) != data.bytes()) {
        send.bytes = message.size();
        return FailLocked(Mismatch(rank(), call, from, send, name()));
      }
      std::copy(message.begin(), message.end(), HostBytes(data).begin());
      return absl::OkStatus();
    }
    if (expired) return FailLocked(NeverEntered({from}, send, name(), patience().timeout));
    expired = WaitExpired(patience().deadline);
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

void OnRanks(int size, absl::FunctionRef<void(Communicator&)> body) {
  const auto world = MakeInProcessGroup(size, "world");
  std::vector<std::thread> ranks;
  for (const auto& rank : world) ranks.emplace_back([&, rank = rank.get()] { body(*rank); });
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace skein::comm

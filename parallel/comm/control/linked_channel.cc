#include "parallel/comm/control/linked_channel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace skein::comm {
namespace {

constexpr size_t kMaxMessageBytes = size_t{64} << 20;
// A peer that was killed is found after at most this long; ten looks a second cost nothing.
constexpr std::chrono::milliseconds kCheckInterval(100);

// The time of day may be set while a call waits.
using SteadyTime = std::chrono::steady_clock::time_point;

SteadyTime ToSteady(absl::Time deadline) {
  const absl::Duration left = deadline - absl::Now();
  if (left > absl::Hours(24 * 365)) return SteadyTime::max();
  return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(left);
}

// A message on the wire is its size in 8 bytes, then its bytes.
struct Incoming {
  uint64_t size = 0;
  size_t got = 0;  // of size and bytes
  std::string bytes;
};

class LinkedChannel final : public ControlChannel {
 public:
  explicit LinkedChannel(Wiring wiring)
      : wiring_(std::move(wiring)), incoming_(wiring_.links.size()) {}
  ~LinkedChannel() override { Close(); }

  int rank() const override { return wiring_.rank; }
  int size() const override { return wiring_.size; }

  absl::Status Broadcast(std::string_view bytes, absl::Time deadline) override;
  absl::Status SendToLeader(std::string_view bytes, absl::Time deadline) override;
  absl::StatusOr<ControlMessage> Receive(absl::Time deadline) override;
  void Close() override;

 private:
  // Writes one message to all `peers`; a slow one does not hold up the others.
  absl::Status Send(std::vector<int> peers, std::string_view bytes, absl::Time deadline);
  // Reads what is there of the peer's next message; true once it is whole.
  absl::StatusOr<bool> Advance(int peer);
  // False when the deadline has passed; else sleeps until the bell is rung, or for a while.
  bool Wait(uint32_t seen, SteadyTime deadline);
  absl::Status Closed() const;

  Wiring wiring_;
  std::vector<Incoming> incoming_;  // [size]
  int next_ = 0;                    // whose turn it is to be received from
  absl::Status send_failure_;       // a message that was cut off in the middle ends the stream
  std::atomic<SteadyTime> next_check_ = SteadyTime();
  std::atomic<bool> closed_ = false;
};

absl::Status LinkedChannel::Closed() const {
  return absl::CancelledError(
      absl::StrCat("the control channel of '", wiring_.group, "' was closed"));
}

void LinkedChannel::Close() {
  if (closed_.exchange(true)) return;
  for (Link* link : wiring_.links) {
    if (link != nullptr) link->Close();
  }
  wiring_.bell->Ring();
}

bool LinkedChannel::Wait(uint32_t seen, SteadyTime deadline) {
  const SteadyTime now = std::chrono::steady_clock::now();
  if (now >= deadline) return false;
  if (now >= next_check_.load()) {
    next_check_ = now + kCheckInterval;
    for (Link* link : wiring_.links) {
      if (link != nullptr) link->CheckPeer();
    }
    // One more look at the links before sleeping.
    return true;
  }
  const auto wait = std::min<std::chrono::nanoseconds>(deadline - now, kCheckInterval);
  wiring_.bell->Wait(seen, absl::FromChrono(wait));
  return true;
}

absl::Status LinkedChannel::Broadcast(std::string_view bytes, absl::Time deadline) {
  if (rank() != 0) return absl::FailedPreconditionError("only the leader, rank 0, broadcasts");
  std::vector<int> peers;
  for (int peer = 1; peer < size(); ++peer) peers.push_back(peer);
  return Send(std::move(peers), bytes, deadline);
}

absl::Status LinkedChannel::SendToLeader(std::string_view bytes, absl::Time deadline) {
  if (rank() == 0) return absl::FailedPreconditionError("the leader does not send to itself");
  return Send({0}, bytes, deadline);
}

absl::Status LinkedChannel::Send(std::vector<int> peers, std::string_view bytes,
                                 absl::Time deadline) {
  const SteadyTime until = ToSteady(deadline);
  if (closed_) return Closed();
  if (!send_failure_.ok()) return send_failure_;
  if (bytes.size() > kMaxMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a control message has at most 64 MiB, not ", bytes.size(), " bytes"));
  }
  const uint64_t size = bytes.size();
  const std::string_view header(reinterpret_cast<const char*>(&size), sizeof(size));
  std::vector<size_t> sent(peers.size());
  while (!peers.empty()) {
    const uint32_t seen = wiring_.bell->Count();
    if (closed_) return Closed();
    bool moved = false;
    for (size_t i = 0; i < peers.size();) {
      const absl::StatusOr<size_t> taken = wiring_.links[peers[i]]->TryWrite(
          header.substr(std::min(sent[i], header.size())),
          bytes.substr(sent[i] - std::min(sent[i], header.size())));
      if (!taken.ok()) return send_failure_ = taken.status();
      moved |= *taken > 0;
      sent[i] += *taken;
      if (sent[i] == header.size() + bytes.size()) {
        sent.erase(sent.begin() + i);
        peers.erase(peers.begin() + i);
      } else {
        ++i;
      }
    }
    if (peers.empty() || moved) continue;
    if (!Wait(seen, until)) {
      return send_failure_ = absl::DeadlineExceededError(absl::StrCat(
                 absl::StrJoin(
                     peers, ", ",
                     [this](std::string* out, int peer) { out->append(wiring_.rank_names[peer]); }),
                 " did not take a control message of ", bytes.size(), " bytes in time"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> LinkedChannel::Advance(int peer) {
  Link& link = *wiring_.links[peer];
  Incoming& message = incoming_[peer];
  while (true) {
    if (message.got < sizeof(message.size)) {
      SKEIN_ASSIGN_OR_RETURN(const size_t got,
                             link.TryRead(reinterpret_cast<char*>(&message.size) + message.got,
                                          sizeof(message.size) - message.got));
      if (got == 0) return false;
      message.got += got;
      if (message.got < sizeof(message.size)) continue;
      if (message.size > kMaxMessageBytes) {
        return absl::InternalError(absl::StrCat("the control stream of ", wiring_.rank_names[peer],
                                                " is broken: a message of ", message.size,
                                                " bytes"));
      }
      message.bytes.resize(message.size);
    }
    const size_t done = message.got - sizeof(message.size);
    if (done == message.size) return true;
    SKEIN_ASSIGN_OR_RETURN(const size_t got,
                           link.TryRead(message.bytes.data() + done, message.size - done));
    if (got == 0) return false;
    message.got += got;
  }
}

absl::StatusOr<ControlMessage> LinkedChannel::Receive(absl::Time deadline) {
  const SteadyTime until = ToSteady(deadline);
  while (true) {
    const uint32_t seen = wiring_.bell->Count();
    if (closed_) return Closed();
    absl::Status failure;
    for (int i = 0; i < size(); ++i) {
      const int peer = (next_ + i) % size();
      if (wiring_.links[peer] == nullptr) continue;
      const absl::StatusOr<bool> whole = Advance(peer);
      if (!whole.ok()) {
        failure.Update(whole.status());
      } else if (*whole) {
        next_ = peer + 1;
        return ControlMessage{peer, std::move(std::exchange(incoming_[peer], {}).bytes)};
      }
    }
    if (!failure.ok()) return failure;
    if (!Wait(seen, until)) {
      return absl::DeadlineExceededError(
          absl::StrCat(rank() == 0 ? "no rank" : wiring_.rank_names[0],
                       " sent a control message of '", wiring_.group, "' in time"));
    }
  }
}

}  // namespace

std::unique_ptr<ControlChannel> MakeLinkedChannel(Wiring wiring) {
  return std::make_unique<LinkedChannel>(std::move(wiring));
}

}  // namespace skein::comm

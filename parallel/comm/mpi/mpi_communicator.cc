#include "parallel/comm/mpi/mpi_communicator.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <mutex>
#include <utility>

#include "base/status_macros.h"
#include "parallel/comm/call.h"
#include "parallel/comm/mpi/backoff.h"
#include "parallel/comm/mpi/mpi_status.h"
#include "parallel/comm/tree_sum.h"

namespace skein::comm {
namespace {

using Bytes = absl::Span<std::byte>;
using ConstBytes = absl::Span<const std::byte>;

// A frame is a Call, padded so that the payload is aligned, and the payload.
constexpr size_t kHeaderBytes = 64;
static_assert(sizeof(Call) <= kHeaderBytes);
// Payloads up to this size travel in the frame, and all-reduces that bring a rank no more than this
// take one step: below it a second step costs more than the bytes (measured: 4 ranks on 2 cores).
constexpr size_t kInlineBytes = 16 << 10;
// A sender runs ahead of its receiver by this much: a few micro-batches of activations.
constexpr size_t kSendWindowBytes = size_t{16} << 20;

// Tags of one group.
enum Lane { kFrames, kPayloads, kMessageFrames, kMessagePayloads, kLanes };

// What one collective moves between this rank and another. Both know both sizes from the call.
struct Parcel {
  ConstBytes out;
  size_t in_bytes = 0;
};

// A message that MPI may still read from.
struct Outgoing {
  std::vector<std::byte> bytes;  // header, payload
  MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
};

struct Peer {
  std::vector<std::byte> frame_in = std::vector<std::byte>(kHeaderBytes + kInlineBytes);
  std::vector<std::byte> frame_out = std::vector<std::byte>(kHeaderBytes + kInlineBytes);
  std::vector<std::byte> payload_in;
  std::deque<Outgoing> outgoing;
  size_t outgoing_bytes = 0;
  int64_t sent = 0;
  int64_t received = 0;
};

bool IsInline(size_t bytes) { return bytes <= kInlineBytes; }

ConstBytes AsBytes(absl::Span<const float> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}
const float* AsFloats(ConstBytes bytes) { return reinterpret_cast<const float*>(bytes.data()); }

void Copy(ConstBytes from, std::byte* to) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MpiWire& wire, MpiGroup group)
      : wire_(wire),
        group_(std::move(group)),
        size_(static_cast<int>(group_.world_ranks.size())),
        peers_(size_ > 1 ? size_ : 0),
        requests_(kRequestsPerPeer * size_, MPI_REQUEST_NULL) {}
  ~MpiCommunicator() override { AbandonAll(); }

  int rank() const override { return group_.rank; }
  int size() const override { return size_; }
  std::string_view name() const override { return group_.name; }
  void set_timeout(absl::Duration timeout) override { timeout_ = timeout; }
  int64_t calls() const override { return calls_; }

  absl::Status AllReduce(absl::Span<float> data, Stream) override;
  absl::Status AllGather(ConstBytes in, Bytes out, Stream) override;
  absl::Status ReduceScatter(absl::Span<const float> in, absl::Span<float> out, Stream) override;
  absl::Status Broadcast(Bytes data, int root, Stream) override;
  absl::Status Send(ConstBytes data, int to, Stream) override;
  absl::Status Receive(Bytes data, int from, Stream) override;
  absl::Status Barrier(Stream) override;
  void Abort(absl::Status why) override;

 private:
  enum RequestKind { kFrameIn, kFrameOut, kPayloadIn, kPayloadOut, kRequestsPerPeer };

  int tag(Lane lane) const { return group_.context * kLanes + lane; }
  MPI_Request& request(RequestKind kind, int peer) { return requests_[kind * size_ + peer]; }

  // Entry and exit of every call: refuses when poisoned; poisons when `status` is an error.
  absl::Status Enter();
  absl::Status Leave(absl::Status status);
  Call NextCall(Operation operation, int64_t bytes, int peer = 0);
  void AbandonAll();

  absl::Status SumDirectly(const Call& call, absl::Span<float> data);
  absl::Status SumByParts(const Call& call, absl::Span<float> data);
  // out[part] = the sum of this rank's part of all ranks' inputs.
  absl::Status SumPart(const Call& call, absl::Span<const float> in, float* out);

  // Moves parcels[peer] to and from all other ranks, after checking that they entered `call`.
  // `again`: the call's second exchange, so that all are known to have entered.
  absl::Status Exchange(const Call& call, absl::Span<const Parcel> parcels, bool again = false);
  // What the last exchange brought, until the next one.
  ConstBytes Received(int peer, size_t bytes) const {
    return IsInline(bytes) ? ConstBytes(peers_[peer].frame_in).subspan(kHeaderBytes, bytes)
                           : ConstBytes(peers_[peer].payload_in).first(bytes);
  }
  Bytes PayloadRoom(int peer, size_t bytes) {
    std::vector<std::byte>& room = peers_[peer].payload_in;
    if (room.size() < bytes) room.resize(bytes);
    return absl::MakeSpan(room).first(bytes);
  }
  void StagePayloads(absl::Span<const Parcel> parcels);
  absl::Status SendFrame(const Call& call, int peer, ConstBytes out);
  absl::Status PostPayloads(int peer, absl::Span<const Parcel> parcels);
  std::vector<int> PeersInFlight(std::initializer_list<RequestKind> kinds);
  absl::Status SendMessage(const Call& call, ConstBytes data, int to);
  absl::Status ReceiveMessage(const Call& call, Bytes data, int from);

  // Waits for all `requests`; false when the deadline passed first.
  absl::StatusOr<bool> Await(absl::Span<MPI_Request> requests);
  absl::Status PostSend(ConstBytes bytes, int to, Lane lane, MPI_Request& request);
  absl::Status PostReceive(Bytes bytes, int from, Lane lane, MPI_Request& request);

  MpiWire& wire_;
  const MpiGroup group_;
  const int size_;
  absl::Duration timeout_ = absl::InfiniteDuration();
  absl::Time deadline_ = absl::InfiniteFuture();  // of the call in flight
  int64_t calls_ = 0;
  std::vector<Peer> peers_;            // [size]; empty for a group of one
  std::vector<MPI_Request> requests_;  // [kind][peer], of the collective in flight
  std::vector<int> finished_;          // indices that a poll found
  // MPI sees only memory of the group, since a call that fails returns while MPI still uses it.
  std::vector<std::byte> payload_out_;
  std::vector<ConstBytes> staged_;  // [size], in payload_out_

  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  absl::Status failure_;  // guarded by mutex_
};

// ---- Entry, exit, failure ----

absl::Status MpiCommunicator::Enter() {
  deadline_ = absl::Now() + timeout_;
  if (!failed_) return absl::OkStatus();
  std::lock_guard lock(mutex_);
  return failure_;
}

absl::Status MpiCommunicator::Leave(absl::Status status) {
  if (status.ok()) return status;
  Abort(std::move(status));
  AbandonAll();
  std::lock_guard lock(mutex_);
  return failure_;
}

void MpiCommunicator::Abort(absl::Status why) {
  std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = std::move(why);
  failed_ = true;
}

void MpiCommunicator::AbandonAll() {
  const auto in_flight = [](absl::Span<const MPI_Request> requests) {
    return std::any_of(requests.begin(), requests.end(),
                       [](MPI_Request request) { return request != MPI_REQUEST_NULL; });
  };
  // MPI may use them until the requests end.
  for (Peer& peer : peers_) {
    for (Outgoing& outgoing : peer.outgoing) {
      if (in_flight(outgoing.requests)) wire_.Abandon(outgoing.requests, std::move(outgoing.bytes));
    }
  }
  if (in_flight(requests_)) {
    wire_.Abandon(requests_, std::move(payload_out_));
    for (Peer& peer : peers_) {
      for (auto* buffer : {&peer.frame_in, &peer.frame_out, &peer.payload_in}) {
        wire_.Abandon({}, std::move(*buffer));
      }
    }
  }
  requests_.assign(requests_.size(), MPI_REQUEST_NULL);
  peers_.clear();
}

Call MpiCommunicator::NextCall(Operation operation, int64_t bytes, int peer) {
  return {operation, peer, ++calls_, bytes};
}

// ---- Collectives ----

absl::Status MpiCommunicator::AllReduce(absl::Span<float> data, Stream) {
  SKEIN_RETURN_IF_ERROR(Enter());
  const Call call = NextCall(Operation::kAllReduce, AsBytes(data).size());
  if (size_ == 1) return absl::OkStatus();
  const size_t received_directly = AsBytes(data).size() * (size_ - 1);
  return Leave(received_directly <= kInlineBytes ? SumDirectly(call, data)
                                                 : SumByParts(call, data));
}

absl::Status MpiCommunicator::SumDirectly(const Call& call, absl::Span<float> data) {
  const ConstBytes bytes = AsBytes(data);
  SKEIN_RETURN_IF_ERROR(Exchange(call, std::vector<Parcel>(size_, {bytes, bytes.size()})));
  std::vector<const float*> inputs(size_);
  for (int peer = 0; peer < size_; ++peer) {
    inputs[peer] = peer == rank() ? data.data() : AsFloats(Received(peer, bytes.size()));
  }
  TreeSum(inputs, data.size(), data.data());
  return absl::OkStatus();
}

absl::Status MpiCommunicator::SumPart(const Call& call, absl::Span<const float> in, float* out) {
  const Range own = PartOf(in.size(), rank(), size_);
  const size_t own_bytes = own.size() * sizeof(float);
  std::vector<Parcel> parcels(size_);
  for (int peer = 0; peer < size_; ++peer) {
    const Range theirs = PartOf(in.size(), peer, size_);
    parcels[peer] = {AsBytes(in.subspan(theirs.begin, theirs.size())), own_bytes};
  }
  SKEIN_RETURN_IF_ERROR(Exchange(call, parcels));
  std::vector<const float*> inputs(size_);
  for (int peer = 0; peer < size_; ++peer) {
    inputs[peer] = peer == rank() ? in.data() + own.begin : AsFloats(Received(peer, own_bytes));
  }
  TreeSum(inputs, own.size(), out);
  return absl::OkStatus();
}

absl::Status MpiCommunicator::SumByParts(const Call& call, absl::Span<float> data) {
  const Range own = PartOf(data.size(), rank(), size_);
  SKEIN_RETURN_IF_ERROR(SumPart(call, data, data.data() + own.begin));
  const ConstBytes summed = AsBytes(data.subspan(own.begin, own.size()));
  std::vector<Parcel> parcels(size_, {summed, 0});
  for (int peer = 0; peer < size_; ++peer) {
    parcels[peer].in_bytes = PartOf(data.size(), peer, size_).size() * sizeof(float);
  }
  SKEIN_RETURN_IF_ERROR(Exchange(call, parcels, /*again=*/true));
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank()) continue;
    const Range theirs = PartOf(data.size(), peer, size_);
    Copy(Received(peer, parcels[peer].in_bytes),
         reinterpret_cast<std::byte*>(data.data() + theirs.begin));
  }
  return absl::OkStatus();
}

absl::Status MpiCommunicator::ReduceScatter(absl::Span<const float> in, absl::Span<float> out,
                                            Stream) {
  SKEIN_RETURN_IF_ERROR(Enter());
  if (absl::Status fits = CheckReduceScatter(in.size(), out.size(), size_, name()); !fits.ok()) {
    return Leave(std::move(fits));
  }
  const Call call = NextCall(Operation::kReduceScatter, AsBytes(in).size());
  return Leave(SumPart(call, in, out.data()));
}

absl::Status MpiCommunicator::AllGather(ConstBytes in, Bytes out, Stream) {
  SKEIN_RETURN_IF_ERROR(Enter());
  if (absl::Status fits = CheckAllGather(in.size(), out.size(), size_, name()); !fits.ok()) {
    return Leave(std::move(fits));
  }
  const Call call = NextCall(Operation::kAllGather, in.size());
  SKEIN_RETURN_IF_ERROR(Leave(Exchange(call, std::vector<Parcel>(size_, {in, in.size()}))));
  for (int peer = 0; peer < size_; ++peer) {
    Copy(peer == rank() ? in : Received(peer, in.size()), out.data() + peer * in.size());
  }
  return absl::OkStatus();
}

absl::Status MpiCommunicator::Broadcast(Bytes data, int root, Stream) {
  SKEIN_RETURN_IF_ERROR(Enter());
  if (absl::Status fits = CheckRank(root, size_, -1, "root of a broadcast", name()); !fits.ok()) {
    return Leave(std::move(fits));
  }
  const Call call = NextCall(Operation::kBroadcast, data.size(), root);
  std::vector<Parcel> parcels(size_);
  if (rank() == root) {
    for (Parcel& parcel : parcels) parcel.out = data;
  } else {
    parcels[root].in_bytes = data.size();
  }
  SKEIN_RETURN_IF_ERROR(Leave(Exchange(call, parcels)));
  if (rank() != root) Copy(Received(root, data.size()), data.data());
  return absl::OkStatus();
}

absl::Status MpiCommunicator::Barrier(Stream) {
  SKEIN_RETURN_IF_ERROR(Enter());
  return Leave(Exchange(NextCall(Operation::kBarrier, 0), std::vector<Parcel>(size_)));
}

// ---- Frames ----

absl::Status MpiCommunicator::Exchange(const Call& call, absl::Span<const Parcel> parcels,
                                       bool again) {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank()) continue;
    SKEIN_RETURN_IF_ERROR(
        PostReceive(absl::MakeSpan(peers_[peer].frame_in), peer, kFrames, request(kFrameIn, peer)));
  }
  for (int step = 1; step < size_; ++step) {
    const int peer = (rank() + step) % size_;  // so that not all ranks begin with the same one
    SKEIN_RETURN_IF_ERROR(SendFrame(call, peer, parcels[peer].out));
  }
  SKEIN_ASSIGN_OR_RETURN(const bool entered, Await(absl::MakeSpan(requests_)));
  if (!entered) {
    const std::vector<int> absent = PeersInFlight({kFrameIn});
    return again || absent.empty()
               ? NeverFinished(PeersInFlight({kFrameIn, kFrameOut}), call, name(), timeout_)
               : NeverEntered(absent, call, name(), timeout_);
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank()) continue;
    Call theirs;
    std::memcpy(&theirs, peers_[peer].frame_in.data(), sizeof(theirs));
    if (theirs != call) return Mismatch(rank(), call, peer, theirs, name());
  }
  StagePayloads(parcels);
  for (int step = 1; step < size_; ++step) {
    SKEIN_RETURN_IF_ERROR(PostPayloads((rank() + step) % size_, parcels));
  }
  SKEIN_ASSIGN_OR_RETURN(const bool finished, Await(absl::MakeSpan(requests_)));
  if (finished) return absl::OkStatus();
  return NeverFinished(PeersInFlight({kPayloadIn, kPayloadOut}), call, name(), timeout_);
}

std::vector<int> MpiCommunicator::PeersInFlight(std::initializer_list<RequestKind> kinds) {
  std::vector<int> ranks;
  for (int peer = 0; peer < size_; ++peer) {
    for (RequestKind kind : kinds) {
      if (request(kind, peer) == MPI_REQUEST_NULL) continue;
      ranks.push_back(peer);
      break;
    }
  }
  return ranks;
}

// Copies what is too large for a frame; a payload that goes to all is copied once.
void MpiCommunicator::StagePayloads(absl::Span<const Parcel> parcels) {
  size_t used = 0;
  staged_.assign(size_, {});
  for (const bool copy : {false, true}) {  // measures, then copies
    if (copy && payload_out_.size() < used) payload_out_.resize(used);
    used = 0;
    ConstBytes last;
    for (int peer = 0; peer < size_; ++peer) {
      const ConstBytes out = parcels[peer].out;
      if (peer == rank() || IsInline(out.size())) continue;
      if (out.data() != last.data()) {
        if (copy) Copy(out, &payload_out_[used]);
        used += out.size();
        last = out;
      }
      staged_[peer] = ConstBytes(payload_out_.data() + used - out.size(), out.size());
    }
  }
}

absl::Status MpiCommunicator::SendFrame(const Call& call, int peer, ConstBytes out) {
  std::vector<std::byte>& frame = peers_[peer].frame_out;
  std::memcpy(frame.data(), &call, sizeof(call));
  if (!IsInline(out.size())) out = {};
  Copy(out, &frame[kHeaderBytes]);
  return PostSend(ConstBytes(frame).first(kHeaderBytes + out.size()), peer, kFrames,
                  request(kFrameOut, peer));
}

absl::Status MpiCommunicator::PostPayloads(int peer, absl::Span<const Parcel> parcels) {
  const Parcel& parcel = parcels[peer];
  if (!IsInline(parcel.in_bytes)) {
    SKEIN_RETURN_IF_ERROR(PostReceive(PayloadRoom(peer, parcel.in_bytes), peer, kPayloads,
                                      request(kPayloadIn, peer)));
  }
  if (IsInline(parcel.out.size())) return absl::OkStatus();
  return PostSend(staged_[peer], peer, kPayloads, request(kPayloadOut, peer));
}

// ---- Messages ----

absl::Status MpiCommunicator::Send(ConstBytes data, int to, Stream) {
  SKEIN_RETURN_IF_ERROR(Enter());
  if (absl::Status fits = CheckRank(to, size_, rank(), "receiver", name()); !fits.ok()) {
    return Leave(std::move(fits));
  }
  const int64_t bytes = data.size();
  return Leave(SendMessage({Operation::kSend, to, ++peers_[to].sent, bytes}, data, to));
}

absl::Status MpiCommunicator::SendMessage(const Call& call, ConstBytes data, int to) {
  Peer& peer = peers_[to];
  // Frees what was taken meanwhile; waits only when too much is on its way.
  while (!peer.outgoing.empty()) {
    Outgoing& oldest = peer.outgoing.front();
    const bool full = peer.outgoing_bytes + data.size() > kSendWindowBytes;
    if (full) {
      SKEIN_ASSIGN_OR_RETURN(const bool taken, Await(oldest.requests));
      if (!taken) {
        const int64_t number = call.number - static_cast<int64_t>(peer.outgoing.size());
        return NeverEntered({to}, {Operation::kReceive, rank(), number, 0}, name(), timeout_);
      }
    } else {
      int taken = 0;
      SKEIN_RETURN_IF_MPI_ERROR(MPI_Testall(2, oldest.requests, &taken, MPI_STATUSES_IGNORE));
      if (taken == 0) break;
    }
    peer.outgoing_bytes -= oldest.bytes.size() - kHeaderBytes;
    peer.outgoing.pop_front();
  }
  Outgoing& message = peer.outgoing.emplace_back();
  message.bytes.resize(kHeaderBytes + data.size());
  std::memcpy(message.bytes.data(), &call, sizeof(call));
  Copy(data, message.bytes.data() + kHeaderBytes);
  peer.outgoing_bytes += data.size();
  const ConstBytes bytes = message.bytes;
  if (IsInline(data.size())) {
    return PostSend(bytes, to, kMessageFrames, message.requests[0]);
  }
  SKEIN_RETURN_IF_ERROR(
      PostSend(bytes.first(kHeaderBytes), to, kMessageFrames, message.requests[0]));
  return PostSend(bytes.subspan(kHeaderBytes), to, kMessagePayloads, message.requests[1]);
}

absl::Status MpiCommunicator::Receive(Bytes data, int from, Stream) {
  SKEIN_RETURN_IF_ERROR(Enter());
  if (absl::Status fits = CheckRank(from, size_, rank(), "sender", name()); !fits.ok()) {
    return Leave(std::move(fits));
  }
  const int64_t bytes = data.size();
  const int64_t number = ++peers_[from].received;
  return Leave(ReceiveMessage({Operation::kSend, rank(), number, bytes}, data, from));
}

// `call` is the send that is waited for.
absl::Status MpiCommunicator::ReceiveMessage(const Call& call, Bytes data, int from) {
  const std::vector<std::byte>& frame = peers_[from].frame_in;
  MPI_Request& frame_in = request(kFrameIn, from);
  SKEIN_RETURN_IF_ERROR(
      PostReceive(absl::MakeSpan(peers_[from].frame_in), from, kMessageFrames, frame_in));
  SKEIN_ASSIGN_OR_RETURN(const bool entered, Await(absl::MakeSpan(&frame_in, 1)));
  if (!entered) return NeverEntered({from}, call, name(), timeout_);
  Call theirs;
  std::memcpy(&theirs, frame.data(), sizeof(theirs));
  if (theirs != call) {
    const Call mine = {Operation::kReceive, from, call.number, call.bytes};
    return Mismatch(rank(), mine, from, theirs, name());
  }
  if (!IsInline(data.size())) {
    MPI_Request& payload_in = request(kPayloadIn, from);
    SKEIN_RETURN_IF_ERROR(
        PostReceive(PayloadRoom(from, data.size()), from, kMessagePayloads, payload_in));
    SKEIN_ASSIGN_OR_RETURN(const bool finished, Await(absl::MakeSpan(&payload_in, 1)));
    if (!finished) return NeverFinished({from}, call, name(), timeout_);
  }
  Copy(Received(from, data.size()), data.data());
  return absl::OkStatus();
}

// ---- MPI ----

absl::StatusOr<bool> MpiCommunicator::Await(absl::Span<MPI_Request> requests) {
  finished_.resize(requests.size());
  Backoff backoff;
  while (true) {
    int count = 0;
    SKEIN_RETURN_IF_MPI_ERROR(MPI_Testsome(static_cast<int>(requests.size()), requests.data(),
                                           &count, finished_.data(), MPI_STATUSES_IGNORE));
    if (count == MPI_UNDEFINED) return true;  // no request is left
    if (count > 0) {
      backoff.Reset();
      continue;
    }
    if (failed_) return absl::AbortedError("aborted");  // Leave tells why
    if (absl::Now() > deadline_) return false;
    backoff.Pause();
  }
}

absl::Status MpiCommunicator::PostSend(ConstBytes bytes, int to, Lane lane, MPI_Request& request) {
  if (bytes.size() > INT_MAX) {
    return absl::InvalidArgumentError("one call moves at most 2 GiB between two ranks: split it");
  }
  SKEIN_RETURN_IF_MPI_ERROR(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE,
                                      group_.world_ranks[to], tag(lane), MPI_COMM_WORLD, &request));
  return absl::OkStatus();
}

absl::Status MpiCommunicator::PostReceive(Bytes bytes, int from, Lane lane, MPI_Request& request) {
  if (bytes.size() > INT_MAX) {
    return absl::InvalidArgumentError("one call moves at most 2 GiB between two ranks: split it");
  }
  SKEIN_RETURN_IF_MPI_ERROR(MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE,
                                      group_.world_ranks[from], tag(lane), MPI_COMM_WORLD,
                                      &request));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeMpiCommunicator(MpiWire& wire, MpiGroup group) {
  if (group.context > wire.largest_tag() / kLanes - 1) {
    return absl::OutOfRangeError("too many groups were made: MPI has no tag left");
  }
  return std::make_unique<MpiCommunicator>(wire, std::move(group));
}

}  // namespace skein::comm

#include "parallel/comm/mpi/mpi_messages.h"

#include <utility>

#include "base/status_macros.h"
#include "parallel/comm/call.h"
#include "parallel/comm/mpi/mpi_status.h"

namespace skein::comm {
namespace {

// A sender runs ahead of its receiver by this much: a few micro-batches of activations.
constexpr size_t kSendWindowBytes = size_t{16} << 20;

}  // namespace

MpiMessages::~MpiMessages() {
  for (Peer& peer : peers_) {
    for (Outgoing& message : peer.outgoing) {
      if (!InFlight(message.requests)) continue;
      link_.wire().Abandon(message.requests, std::move(message.bytes));
    }
  }
  if (incoming_ == MPI_REQUEST_NULL) return;
  link_.wire().Abandon({&incoming_, 1}, std::move(frame_in_));
  link_.wire().Abandon({}, std::move(payload_in_));
}

absl::Status MpiMessages::Send(const Call& call, ConstBytes data) {
  const int to = call.peer;
  Peer& peer = peers_[to];
  SKEIN_RETURN_IF_ERROR(MakeRoom(data.size(), to));
  Outgoing& message = peer.outgoing.emplace_back();
  message.number = call.number;
  message.bytes.resize(kHeaderBytes + data.size());
  FillFrame(call, data, message.bytes.data());
  peer.outgoing_bytes += data.size();
  const ConstBytes bytes = message.bytes;
  if (IsInline(data.size())) {
    return link_.StartSend(bytes, to, MpiLink::kMessageFrames, message.requests[0]);
  }
  SKEIN_RETURN_IF_ERROR(
      link_.StartSend(bytes.first(kHeaderBytes), to, MpiLink::kMessageFrames, message.requests[0]));
  return link_.StartSend(bytes.subspan(kHeaderBytes), to, MpiLink::kMessagePayloads,
                         message.requests[1]);
}

absl::Status MpiMessages::MakeRoom(size_t bytes, int to) {
  Peer& peer = peers_[to];
  while (!peer.outgoing.empty()) {
    Outgoing& oldest = peer.outgoing.front();
    if (peer.outgoing_bytes + bytes > kSendWindowBytes) {
      SKEIN_ASSIGN_OR_RETURN(const bool taken, link_.Await(oldest.requests, MpiLink::For::kPeers));
      if (!taken) {
        return NeverEntered({to}, {Operation::kReceive, link_.rank(), oldest.number, 0},
                            link_.name(), link_.timeout());
      }
    } else {
      int taken = 0;
      SKEIN_RETURN_IF_MPI_ERROR(MPI_Testall(2, oldest.requests, &taken, MPI_STATUSES_IGNORE));
      if (taken == 0) break;
    }
    peer.outgoing_bytes -= oldest.bytes.size() - kHeaderBytes;
    peer.outgoing.pop_front();
  }
  return absl::OkStatus();
}

absl::Status MpiMessages::Progress() {
  for (size_t to = 0; to < peers_.size(); ++to) {
    SKEIN_RETURN_IF_ERROR(MakeRoom(0, static_cast<int>(to)));
  }
  return absl::OkStatus();
}

absl::Status MpiMessages::Flush(int to) { return MakeRoom(kSendWindowBytes + 1, to); }

absl::Status MpiMessages::Receive(const Call& call, Bytes data) {
  const int from = call.peer;
  const Call send = {Operation::kSend, link_.rank(), call.number, call.bytes};
  const absl::Span<MPI_Request> incoming(&incoming_, 1);
  SKEIN_RETURN_IF_ERROR(
      link_.StartReceive(absl::MakeSpan(frame_in_), from, MpiLink::kMessageFrames, incoming_));
  SKEIN_ASSIGN_OR_RETURN(const bool entered, link_.Await(incoming, MpiLink::For::kPeers));
  if (!entered) return NeverEntered({from}, send, link_.name(), link_.timeout());
  if (const Call theirs = CallOf(frame_in_); theirs != send) {
    return Mismatch(link_.rank(), call, from, theirs, link_.name());
  }
  if (IsInline(data.size())) {
    CopyBytes(ConstBytes(frame_in_).subspan(kHeaderBytes, data.size()), data.data());
    return absl::OkStatus();
  }
  if (payload_in_.size() < data.size()) payload_in_.resize(data.size());
  const Bytes room = absl::MakeSpan(payload_in_).first(data.size());
  SKEIN_RETURN_IF_ERROR(link_.StartReceive(room, from, MpiLink::kMessagePayloads, incoming_));
  SKEIN_ASSIGN_OR_RETURN(const bool finished, link_.Await(incoming, MpiLink::For::kBytes));
  if (!finished) return NeverFinished({from}, send, link_.name(), link_.timeout());
  CopyBytes(room, data.data());
  return absl::OkStatus();
}

}  // namespace skein::comm

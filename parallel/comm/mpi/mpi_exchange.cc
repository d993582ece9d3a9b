#include "parallel/comm/mpi/mpi_exchange.h"

#include <utility>

#include "base/status_macros.h"

namespace skein::comm {

MpiExchange::MpiExchange(MpiLink& link)
    : link_(link),
      peers_(link.size() > 1 ? link.size() : 0),
      requests_(kRequestsPerPeer * link.size(), MPI_REQUEST_NULL),
      staged_(link.size()),
      received_(link.size()) {
  for (int step = 1; step < link.size(); ++step) {
    others_.push_back((link.rank() + step) % link.size());
  }
}

MpiExchange::~MpiExchange() {
  if (!InFlight(requests_)) return;
  link_.wire().Abandon(requests_, std::move(payload_out_));
  for (Peer& peer : peers_) {
    for (auto* buffer : {&peer.frame_in, &peer.frame_out, &peer.payload_in}) {
      link_.wire().Abandon({}, std::move(*buffer));
    }
  }
}

absl::Status MpiExchange::Run(const Call& call, absl::Span<const Parcel> parcels, bool again) {
  received_[link_.rank()] = parcels[link_.rank()].out;
  SKEIN_RETURN_IF_ERROR(TradeFrames(call, parcels, again));
  return TradePayloads(call, parcels);
}

absl::Status MpiExchange::TradeFrames(const Call& call, absl::Span<const Parcel> parcels,
                                      bool again) {
  for (int peer : others_) {
    SKEIN_RETURN_IF_ERROR(link_.StartReceive(absl::MakeSpan(peers_[peer].frame_in), peer,
                                             MpiLink::kFrames, request(kFrameIn, peer)));
  }
  for (int peer : others_) {
    std::vector<std::byte>& frame = peers_[peer].frame_out;
    const ConstBytes out = parcels[peer].out;
    const ConstBytes payload = IsInline(out.size()) ? out : ConstBytes();
    FillFrame(call, payload, frame.data());
    SKEIN_RETURN_IF_ERROR(link_.StartSend(ConstBytes(frame).first(kHeaderBytes + payload.size()),
                                          peer, MpiLink::kFrames, request(kFrameOut, peer)));
  }
  SKEIN_ASSIGN_OR_RETURN(const bool entered,
                         link_.Await(absl::MakeSpan(requests_), MpiLink::For::kPeers));
  if (!entered) {
    const std::vector<int> absent = PeersInFlight({kFrameIn});
    return again || absent.empty() ? NeverFinished(PeersInFlight({kFrameIn, kFrameOut}), call,
                                                   link_.name(), link_.timeout())
                                   : NeverEntered(absent, call, link_.name(), link_.timeout());
  }
  for (int peer = 0; peer < link_.size(); ++peer) {
    if (peer == link_.rank()) continue;
    const Call theirs = CallOf(peers_[peer].frame_in);
    if (theirs != call) return Mismatch(link_.rank(), call, peer, theirs, link_.name());
  }
  return absl::OkStatus();
}

absl::Status MpiExchange::TradePayloads(const Call& call, absl::Span<const Parcel> parcels) {
  StagePayloads(parcels);
  for (int peer : others_) {
    SKEIN_RETURN_IF_ERROR(StartReceivingPayload(peer, parcels[peer].in_bytes));
    const size_t bytes = parcels[peer].out.size();
    if (IsInline(bytes)) continue;
    SKEIN_RETURN_IF_ERROR(link_.StartSend(ConstBytes(payload_out_).subspan(staged_[peer], bytes),
                                          peer, MpiLink::kPayloads, request(kPayloadOut, peer)));
  }
  if (!InFlight(requests_)) return absl::OkStatus();  // all was in frames
  SKEIN_ASSIGN_OR_RETURN(const bool finished,
                         link_.Await(absl::MakeSpan(requests_), MpiLink::For::kBytes));
  if (finished) return absl::OkStatus();
  return NeverFinished(PeersInFlight({kPayloadIn, kPayloadOut}), call, link_.name(),
                       link_.timeout());
}

// Or finds it in the frame.
absl::Status MpiExchange::StartReceivingPayload(int peer, size_t bytes) {
  Peer& from = peers_[peer];
  if (IsInline(bytes)) {
    received_[peer] = ConstBytes(from.frame_in).subspan(kHeaderBytes, bytes);
    return absl::OkStatus();
  }
  if (from.payload_in.size() < bytes) from.payload_in.resize(bytes);
  const Bytes room = absl::MakeSpan(from.payload_in).first(bytes);
  received_[peer] = room;
  return link_.StartReceive(room, peer, MpiLink::kPayloads, request(kPayloadIn, peer));
}

// Copies what is too large for a frame; a payload that goes to all is copied once.
void MpiExchange::StagePayloads(absl::Span<const Parcel> parcels) {
  payload_out_.clear();
  const std::byte* last = nullptr;
  for (int peer : others_) {
    const ConstBytes out = parcels[peer].out;
    if (IsInline(out.size())) continue;
    if (out.data() != last) payload_out_.insert(payload_out_.end(), out.begin(), out.end());
    last = out.data();
    staged_[peer] = payload_out_.size() - out.size();
  }
}

std::vector<int> MpiExchange::PeersInFlight(std::initializer_list<RequestKind> kinds) {
  std::vector<int> ranks;
  for (int peer = 0; peer < link_.size(); ++peer) {
    for (RequestKind kind : kinds) {
      if (request(kind, peer) == MPI_REQUEST_NULL) continue;
      ranks.push_back(peer);
      break;
    }
  }
  return ranks;
}

}  // namespace skein::comm

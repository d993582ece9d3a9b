// The exchange that every collective makes: each rank gives a parcel to every other and gets one.
// Private to this folder.
//
// First one frame between every two ranks: the call that the sender entered, and its parcel if that
// is small. So each rank sees by itself who is missing and who entered another call. Large parcels
// follow once all frames agree: then, and only then, both sides know both sizes.
//
// Owns all memory that MPI sees, since a call that fails returns while MPI still uses it; the end
// of the exchange hands that to the wire. After a failed Run the exchange can only be destroyed.
// One thread at a time.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "parallel/comm/call.h"
#include "parallel/comm/mpi/mpi_link.h"

namespace skein::comm {

// The bytes that one call moves between this rank and another. Both know both sizes from the call.
struct Parcel {
  ConstBytes out;
  size_t in_bytes = 0;
};

class MpiExchange {
 public:
  // `link` and its wire outlive the exchange.
  explicit MpiExchange(MpiLink& link);
  ~MpiExchange();
  MpiExchange(const MpiExchange&) = delete;
  MpiExchange& operator=(const MpiExchange&) = delete;

  // Moves parcels[size] to and from all other ranks, after checking that they entered `call`.
  // `again`: the call's second exchange, so that all are known to have entered.
  // FailedPrecondition names the first rank that entered another call, DeadlineExceeded those that
  // entered none or did not finish. Copies what goes out, once if it is the same for all.
  absl::Status Run(const Call& call, absl::Span<const Parcel> parcels, bool again = false);

  // The bytes that the last exchange brought from `peer`, valid until the next one. For this rank
  // itself, the bytes that it gave.
  ConstBytes Received(int peer) const { return received_[peer]; }

 private:
  enum RequestKind { kFrameIn, kFrameOut, kPayloadIn, kPayloadOut, kRequestsPerPeer };

  struct Peer {
    std::vector<std::byte> frame_in = std::vector<std::byte>(kFrameBytes);
    std::vector<std::byte> frame_out = std::vector<std::byte>(kFrameBytes);
    std::vector<std::byte> payload_in;
  };

  MPI_Request& request(RequestKind kind, int peer) { return requests_[kind * link_.size() + peer]; }
  absl::Status TradeFrames(const Call& call, absl::Span<const Parcel> parcels, bool again);
  absl::Status TradePayloads(const Call& call, absl::Span<const Parcel> parcels);
  absl::Status StartReceivingPayload(int peer, size_t bytes);
  void StagePayloads(absl::Span<const Parcel> parcels);
  std::vector<int> PeersInFlight(std::initializer_list<RequestKind> kinds);

  MpiLink& link_;
  std::vector<int> others_;  // from the next rank on, so that not all begin with the same one
  std::vector<Peer> peers_;  // [size]; empty for a group of one
  std::vector<MPI_Request> requests_;  // [kind][peer]
  std::vector<std::byte> payload_out_;
  std::vector<size_t> staged_;        // [size], where in payload_out_
  std::vector<ConstBytes> received_;  // [size]
};

}  // namespace skein::comm

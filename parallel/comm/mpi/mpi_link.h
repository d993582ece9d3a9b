// One group's way through MPI: bytes between its ranks under tags of its own, and waiting that ends
// with the call's time or the group's failure. Private to this folder.
//
// Owns no bytes and no requests: those given to StartSend and StartReceive stay the caller's. If a
// request has not ended when a call fails, the caller hands it and its bytes to MpiWire::Abandon,
// since MPI may still use them. One thread at a time.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "parallel/comm/call.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/mpi/mpi_wire.h"

namespace skein::comm {

using Bytes = absl::Span<std::byte>;
using ConstBytes = absl::Span<const std::byte>;

// A frame is a Call, padded so that the payload is aligned, and the payload.
inline constexpr size_t kHeaderBytes = 64;
// Payloads up to this size travel in the frame, and all-reduces that bring a rank no more than this
// take one step: below it a second step costs more than the bytes (measured: 4 ranks on 2 cores).
inline constexpr size_t kInlineBytes = 16 << 10;
inline constexpr size_t kFrameBytes = kHeaderBytes + kInlineBytes;

inline bool IsInline(size_t bytes) { return bytes <= kInlineBytes; }

// Reads the call from a frame's header.
Call CallOf(ConstBytes frame);

// Writes the header and, behind it, `payload`.
void FillFrame(const Call& call, ConstBytes payload, std::byte* frame);

// `to` is as large as `from`, which may be empty.
void CopyBytes(ConstBytes from, std::byte* to);

inline bool InFlight(absl::Span<const MPI_Request> requests) {
  return std::any_of(requests.begin(), requests.end(),
                     [](MPI_Request request) { return request != MPI_REQUEST_NULL; });
}

class MpiLink {
 public:
  // Messages of different lanes never match. Each is a tag.
  enum Lane { kFrames, kPayloads, kMessageFrames, kMessagePayloads, kLanes };

  // `wire` and `patience`, which is that of the call in flight, outlive the link.
  MpiLink(MpiWire& wire, MpiGroup group, const Patience& patience)
      : wire_(wire), group_(std::move(group)), patience_(patience) {}

  MpiWire& wire() const { return wire_; }
  int rank() const { return group_.rank; }
  int size() const { return static_cast<int>(group_.world_ranks.size()); }
  const std::string& name() const { return group_.name; }
  absl::Duration timeout() const { return patience_.timeout; }

  // InvalidArgument beyond 2 GiB; Internal in MPI's words.
  absl::Status StartSend(ConstBytes bytes, int to, Lane lane, MPI_Request& request);
  absl::Status StartReceive(Bytes bytes, int from, Lane lane, MPI_Request& request);
  // What a wait is for: other ranks to come into the call, or bytes of those that have. Who waits
  // for bytes polls for 100 ms before it sleeps, and keeps the group's other ranks awake meanwhile.
  enum class For : uint8_t { kPeers, kBytes };
  // Waits until all `requests` have ended, and makes them null; false when the call's time passed
  // first, an error when the group has failed. Polls: see Backoff.
  absl::StatusOr<bool> Await(absl::Span<MPI_Request> requests, For what);

 private:
  // Those of the group that sleep.
  void WakeOthers() const;
  int tag(Lane lane) const { return group_.context * kLanes + lane; }

  MpiWire& wire_;
  const MpiGroup group_;
  const Patience& patience_;
  std::vector<int> finished_;  // indices that a poll found
};

}  // namespace skein::comm

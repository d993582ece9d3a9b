#include "parallel/comm/mpi/mpi_link.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "parallel/comm/mpi/backoff.h"
#include "parallel/comm/mpi/mpi_status.h"

namespace skein::comm {
namespace {

static_assert(sizeof(Call) <= kHeaderBytes);

// Hundreds of MiB pass within it.
constexpr std::chrono::milliseconds kSpinForBytes{100};

absl::Status CheckFits(size_t bytes) {
  if (bytes <= INT_MAX) return absl::OkStatus();
  return absl::InvalidArgumentError("one call moves at most 2 GiB between two ranks: split it");
}

}  // namespace

Call CallOf(ConstBytes frame) {
  Call call;
  std::memcpy(&call, frame.data(), sizeof(call));
  return call;
}

void FillFrame(const Call& call, ConstBytes payload, std::byte* frame) {
  std::memcpy(frame, &call, sizeof(call));
  CopyBytes(payload, frame + kHeaderBytes);
}

void CopyBytes(ConstBytes from, std::byte* to) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

absl::Status MpiLink::StartSend(ConstBytes bytes, int to, Lane lane, MPI_Request& request) {
  SKEIN_RETURN_IF_ERROR(CheckFits(bytes.size()));
  SKEIN_RETURN_IF_MPI_ERROR(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE,
                                      group_.world_ranks[to], tag(lane), MPI_COMM_WORLD, &request));
  wire_.bells().Ring(group_.world_ranks[to]);
  return absl::OkStatus();
}

absl::Status MpiLink::StartReceive(Bytes bytes, int from, Lane lane, MPI_Request& request) {
  SKEIN_RETURN_IF_ERROR(CheckFits(bytes.size()));
  SKEIN_RETURN_IF_MPI_ERROR(MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE,
                                      group_.world_ranks[from], tag(lane), MPI_COMM_WORLD,
                                      &request));
  return absl::OkStatus();
}

void MpiLink::WakeOthers() const {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != group_.rank) wire_.bells().Wake(group_.world_ranks[rank]);
  }
}

absl::StatusOr<bool> MpiLink::Await(absl::Span<MPI_Request> requests, For what) {
  RankClock* const clock = what == For::kPeers ? patience_.clock : nullptr;
  int64_t idle_ns = 0;  // the time of the last poll, where it found nothing
  const auto count_wait = [&](int64_t now_ns) {
    if (idle_ns != 0) clock->AddWaited(now_ns - idle_ns);
    idle_ns = now_ns;
  };
  finished_.resize(requests.size());
  const bool bytes = what == For::kBytes;
  Backoff backoff(
      bytes ? std::max(patience_.spin, absl::FromChrono(kSpinForBytes)) : patience_.spin,
      wire_.bells().own());
  const auto wake_until = std::chrono::steady_clock::now() + kSpinForBytes;
  while (true) {
    backoff.Listen();
    int count = 0;
    SKEIN_RETURN_IF_MPI_ERROR(MPI_Testsome(static_cast<int>(requests.size()), requests.data(),
                                           &count, finished_.data(), MPI_STATUSES_IGNORE));
    if (count != 0 && idle_ns != 0) {
      count_wait(Pulse::NowNs());
      idle_ns = 0;
    }
    if (count == MPI_UNDEFINED) {  // no request is left
      if (bytes) WakeOthers();     // their sender may wait until they were taken
      return true;
    }
    if (count > 0) {
      backoff.Reset();
      continue;
    }
    if (patience_.failed) return absl::AbortedError("aborted");  // failure() tells why
    if (patience_.pulse != nullptr) {
      const int64_t now_ns = patience_.pulse->Beat();
      if (clock != nullptr) count_wait(now_ns);
    }
    const auto now = std::chrono::steady_clock::now();
    if (now > patience_.deadline) return false;
    // Where processes may not read each other's memory, bytes move only while both poll.
    if (bytes && now < wake_until) WakeOthers();
    backoff.Pause();
  }
}

}  // namespace skein::comm

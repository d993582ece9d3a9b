#include "parallel/comm/mpi/mpi_wire.h"

#include <cstdlib>

#include "base/status_macros.h"
#include "parallel/comm/mpi/backoff.h"
#include "parallel/comm/mpi/mpi_status.h"
#include "parallel/comm/mpi/shared_segments.h"
#include "parallel/comm/patience.h"

namespace skein::comm {

absl::StatusOr<std::unique_ptr<MpiWire>> MpiWire::Start() {
  int initialized = 0;
  SKEIN_RETURN_IF_MPI_ERROR(MPI_Initialized(&initialized));
  if (initialized != 0) return absl::FailedPreconditionError("MPI was started before");
  // Open MPI's progress gives the core away where it finds nothing; Backoff leaves that to it.
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", /*overwrite=*/1);
  int granted = MPI_THREAD_SINGLE;
  SKEIN_RETURN_IF_MPI_ERROR(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &granted));
  if (granted < MPI_THREAD_SERIALIZED) {
    return absl::UnimplementedError(
        "this MPI does not allow calls from more than its first thread (MPI_THREAD_SERIALIZED)");
  }
  SKEIN_RETURN_IF_MPI_ERROR(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  std::unique_ptr<MpiWire> wire(new MpiWire);
  SKEIN_RETURN_IF_MPI_ERROR(MPI_Comm_rank(MPI_COMM_WORLD, &wire->rank_));
  SKEIN_RETURN_IF_MPI_ERROR(MPI_Comm_size(MPI_COMM_WORLD, &wire->size_));
  int* largest_tag = nullptr;
  int found = 0;
  SKEIN_RETURN_IF_MPI_ERROR(
      MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&largest_tag), &found));
  wire->largest_tag_ = found != 0 ? *largest_tag : 32767;  // what MPI promises at least
  return wire;
}

absl::Status MpiWire::HideSegments() {
  SKEIN_ASSIGN_OR_RETURN(hidden_segments_, UnlinkSegments(rank_));
  return absl::OkStatus();
}

void MpiWire::Abandon(absl::Span<const MPI_Request> requests, std::vector<std::byte> buffer) {
  for (MPI_Request request : requests) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&request);  // ends receives that matched nothing; of no effect on sends
    abandoned_.push_back(request);
  }
  buffers_.push_back(std::move(buffer));
}

bool MpiWire::Settle(absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  Backoff backoff(kSpin, bells_.own());
  while (!abandoned_.empty()) {
    backoff.Listen();
    int done = 0;
    if (MPI_Testall(static_cast<int>(abandoned_.size()), abandoned_.data(), &done,
                    MPI_STATUSES_IGNORE) != MPI_SUCCESS) {
      return false;
    }
    if (done != 0) return true;
    if (absl::Now() > deadline) return false;
    backoff.Pause();
  }
  return true;
}

MpiWire::~MpiWire() {
  // MPI_Finalize would wait for ever for what a lost peer never takes. A healthy group leaves at
  // most messages that their receivers are about to take.
  constexpr absl::Duration kPatience = absl::Seconds(2);
  if (!Settle(kPatience)) return;
  RestoreSegmentNames(hidden_segments_);
  MPI_Finalize();
}

}  // namespace skein::comm

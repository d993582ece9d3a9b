// A group over MPI's point-to-point messages. Private to this folder: see mpi_runtime.h.
//
// Every collective exchanges one frame between every two ranks: a header that says which call the
// sender entered, and the payload if that is small. So each rank sees by itself who is missing and
// who entered another call, and a small call is one step of latency. Large payloads follow once all
// frames agree. Sums are made by TreeSum, never by MPI_Allreduce, whose order depends on sizes: if
// that brings a rank at most kInlineBytes, every rank sums everything; beyond, each sums one part
// and the parts are gathered (2 (n-1) / n of the bytes per rank, each way).
//
// All groups use MPI_COMM_WORLD, each with tags of its own: making one needs no blocking call of
// MPI's, which would know no deadline.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/mpi/mpi_wire.h"

namespace skein::comm {

// OutOfRange when MPI has no tags left for `context`. `wire` outlives the result.
absl::StatusOr<std::unique_ptr<Communicator>> MakeMpiCommunicator(MpiWire& wire, MpiGroup group);

}  // namespace skein::comm

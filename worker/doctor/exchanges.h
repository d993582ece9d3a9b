// Tries what the ranks of a job exchange by, with nothing loaded: messages between hosts, sums over
// NCCL, and GPUs that write into each other's memory.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "topology/doctor/facts.h"

namespace skein::worker {

// Fills in what `facts` has of exchanges. A call of all ranks, which takes milliseconds for each
// two hosts, and with GPUs some seconds; a message ends within `timeout`. What GPUs cannot
// do is no error, but behind it a thread may wait in NCCL for good. Errors are those of MPI.
absl::Status TryExchanges(comm::MpiRuntime& mpi, absl::Duration timeout,
                          topology::RankFacts& facts);

}  // namespace skein::worker

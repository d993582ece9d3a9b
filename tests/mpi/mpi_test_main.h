// For tests made by mpi_cc_test: every case runs on all ranks at once, and fails if it failed on
// any of them. Only rank 0 reports. Suites whose names end with PeersTest or PeersSuite need more
// than one rank, and have no case on one.
#pragma once

#include "parallel/comm/mpi/mpi_runtime.h"

namespace skein::comm {

// The process's MPI. Cases split groups of their own from it, all ranks alike; they leave world()
// to the test's main, which joins the ranks' results over it after each case.
MpiRuntime& TestRuntime();

}  // namespace skein::comm

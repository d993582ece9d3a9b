// A group whose ranks are threads of one process: for tests, and for running a layout without MPI.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace skein::comm {

// The `size` ranks of one group, in rank order; each is meant for one thread. They share the
// group's state: any order of destruction is fine. A failure of one rank (deadline, mismatch,
// Abort) fails the group, since the others may not touch its buffers any more. Waiters sleep.
//
// Send copies and returns, unless 16 MiB to that rank are still to be received.
std::vector<std::unique_ptr<Communicator>> MakeInProcessGroup(int size, std::string name);

}  // namespace skein::comm

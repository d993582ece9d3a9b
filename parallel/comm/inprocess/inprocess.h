// A group whose ranks are threads of one process: for tests, and for running a layout without MPI.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "parallel/comm/communicator.h"

namespace skein::comm {

// The `size` ranks of one group, in rank order; each is meant for one thread. They share the
// group's state: any order of destruction is fine. A failure of one rank (deadline, mismatch,
// Abort) fails the group, since the others may not touch its buffers any more. Waiters sleep.
//
// Send copies and returns, unless 16 MiB to that rank are still to be received.
std::vector<std::unique_ptr<Communicator>> MakeInProcessGroup(int size, std::string name);

// Calls `body` for each rank of a new group, "world", a thread each, and returns when all have
// returned.
void OnRanks(int size, absl::FunctionRef<void(Communicator&)> body);

}  // namespace skein::comm

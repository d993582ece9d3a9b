// A group of forked processes, for tests of what only processes can do: be killed or stopped.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "parallel/comm/communicator.h"

namespace skein::comm {

// Knows AllGather and Broadcast, through memory that the processes share; all else answers
// Unimplemented.
class ForkGroup {
 public:
  // Forks size - 1 processes and returns in all of them, each as one rank; this process is
  // `parent_rank`. children[rank] is a rank's process, 0 for the parent's. No other thread may run.
  static std::unique_ptr<Communicator> Fork(int size, int parent_rank,
                                            std::vector<pid_t>* children);
};

}  // namespace skein::comm

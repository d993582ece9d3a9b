// One suite for every implementation of Communicator. Its test links communicator_suite and defines
// ForEachGroup; a failure of any rank fails the case.
#pragma once

#include <functional>

#include "parallel/comm/communicator.h"

namespace skein::comm {

// Makes a fresh group for every number of ranks that the test has, calls `body` on every rank of
// it at the same time, and returns when all have returned.
void ForEachGroup(const std::function<void(Communicator&)>& body);

}  // namespace skein::comm

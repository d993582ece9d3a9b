// A communicator whose calls can be watched, whatever carries them.
#pragma once

#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/comm/operation_tracker.h"

namespace skein::comm {

// Passes every call on to `inner`, which has made none yet, and publishes it in `group` while it
// lasts, under the number that `inner` gives it. `group` outlives the result.
std::unique_ptr<Communicator> Track(std::unique_ptr<Communicator> inner,
                                    OperationTracker::Group* group);

}  // namespace skein::comm

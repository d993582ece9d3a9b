// Ranks that end with their mpirun.
#pragma once

#include "absl/status/status.h"

namespace skein::comm {

// From now on the kernel kills this process (SIGKILL) when the process that started it ends:
// mpirun, or its daemon on this host. Open MPI 5 leaves ranks running otherwise. Unavailable when
// the parent ended meanwhile. Call it early, from the main thread.
absl::Status EndWithParent();

}  // namespace skein::comm

#include "parallel/comm/mpi/end_with_parent.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

#include "base/status_util.h"

namespace skein::comm {

absl::Status EndWithParent() {
  const pid_t parent = getppid();
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return ErrnoStatus(errno, "prctl(PR_SET_PDEATHSIG)");
  // A parent that ended before the line above sends no signal.
  if (getppid() != parent)
    return absl::UnavailableError("the process that started this rank ended");
  return absl::OkStatus();
}

}  // namespace skein::comm

#include "supervisor/exit_status.h"

#include <string.h>
#include <sys/wait.h>

#include "absl/strings/str_cat.h"

namespace skein::supervisor {

ExitStatus ExitStatus::FromWait(int status) {
  if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status)};
  return {.code = WEXITSTATUS(status)};
}

std::string ExitStatus::ToString() const {
  if (signal == 0) return absl::StrCat("ended with status ", code);
  const char* name = sigabbrev_np(signal);
  if (name == nullptr) return absl::StrCat("was killed by signal ", signal);
  return absl::StrCat("was killed by SIG", name);
}

}  // namespace skein::supervisor

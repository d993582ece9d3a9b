// How a process ended.
#pragma once

#include <string>

namespace skein::supervisor {

struct ExitStatus {
  int code = 0;    // that it exited with
  int signal = 0;  // that killed it; 0: it exited

  static ExitStatus FromWait(int status);  // of waitpid

  bool Drained() const { return signal == 0 && code == 0; }
  // It refuses its command line, as it would the next time.
  bool Misused() const { return signal == 0 && code == 2; }

  std::string ToString() const;  // "ended with status 9", "was killed by SIGKILL"
};

}  // namespace skein::supervisor

// A child process of a test: its own process group, its output in a file, killed with the test.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace skein::testing {

class Process {
 public:
  struct Options {
    std::string name;  // of the log file, in TEST_TMPDIR
    std::vector<std::string> argv;
    std::vector<std::pair<std::string, std::string>> environment;  // added to the test's
  };

  explicit Process(const Options& options);  // aborts the test when it cannot be started
  ~Process();                                // SIGKILL to the whole group
  Process(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // The exit status, 128 + signal for a killed process; unset when it still runs after `timeout`.
  std::optional<int> Wait(absl::Duration timeout);
  std::string Output() const;  // standard output and error so far
  // Whether `text` appears in the output within `timeout`.
  bool WaitForOutput(const std::string& text, absl::Duration timeout) const;

 private:
  pid_t pid_ = -1;
  std::string log_path_;
  std::optional<int> status_;
};

// Whether a process of this id exists (and is no zombie).
bool IsAlive(pid_t pid);

}  // namespace skein::testing

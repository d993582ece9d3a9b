// A program that runs for a supervisor, with all that it starts.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "supervisor/exit_status.h"

namespace skein::supervisor {

// The variable whose value marks a child and all that it starts.
constexpr const char* kMarkVariable = "SKEIN_STARTED_BY";

// Leads a process group of its own, with default signal handling and nothing open but an empty
// standard input and one pipe for what it says. The kernel kills it when the thread that started it
// ends. Not thread-safe.
class Child {
 public:
  struct Options {
    std::vector<std::string> argv;                                 // argv[0] is looked up in PATH
    std::vector<std::pair<std::string, std::string>> environment;  // replaces and adds to ours
    std::string mark;  // of this start; no other one's mark begins with it
  };

  // Says what cannot be executed, and why.
  static absl::StatusOr<std::unique_ptr<Child>> Start(const Options& options);

  ~Child();  // kills what is left, and waits for the leader
  Child(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // Standard output and error, non-blocking; at its end when nobody can write to it any more.
  int output() const { return output_; }

  // To be called with the end of this process by whoever waits for processes (waitpid).
  void Reaped(const ExitStatus& end) { end_ = end; }
  const std::optional<ExitStatus>& end() const { return end_; }

  // Sends SIGTERM to the group, and lets stopped processes go on so that they take it.
  void Terminate() const;
  // Sends SIGKILL to the group and to all that came from it. A process that is just being started
  // may escape: call it until AnythingLeft() is false.
  void Kill() const;
  bool AnythingLeft() const;

 private:
  Child(pid_t pid, int output, std::string mark);

  pid_t Root() const { return end_ ? 0 : pid_; }  // a reaped process's id may be another's now

  const pid_t pid_;
  const int output_;
  const std::string mark_;  // the whole entry of the environment
  std::optional<ExitStatus> end_;
};

}  // namespace skein::supervisor

// The supervisor as a child: what `skein serve` starts.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::client {

// A process in a group of its own, so that a terminal's Ctrl-C does not reach it by itself. It gets
// SIGTERM when this process dies, however that happens. Not thread-safe; the thread that started it
// must live as long as it.
class Supervised {
 public:
  // Starts argv[0], a path, with these variables beside those of this process; signals are not
  // blocked in it. Its output and errors come from output().
  static absl::StatusOr<std::unique_ptr<Supervised>> Start(
      const std::vector<std::string>& argv,
      const std::vector<std::pair<std::string, std::string>>& environment);
  ~Supervised();  // kills it, if it still runs

  // The pipe with what it says, for poll(); -1 once that is at its end.
  int output() const { return output_; }
  // What has come since, in whole lines; does not block.
  std::vector<std::string> ReadLines();

  void Signal(int signal) const;
  // Its exit status, or 128 + the signal that ended it; none while it runs.
  std::optional<int> Ended();

 private:
  Supervised(pid_t pid, int output) : pid_(pid), output_(output) {}

  const pid_t pid_;
  int output_;
  std::string partial_;  // line
  std::optional<int> status_;
};

}  // namespace skein::client

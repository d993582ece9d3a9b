// The private folder of a supervisor, which goes with it however it ends.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace skein::supervisor {

// A folder, and a process that outlives this one: the guard. Once this process has ended, also by
// SIGKILL, the guard kills every process with a mark (child.h) that begins with the folder's path
// and a slash, and removes the folder.
class Scratch {
 public:
  // Below `parent`. To be called before any thread is started.
  static absl::StatusOr<std::unique_ptr<Scratch>> Make(const std::string& parent);

  ~Scratch();  // waits until the guard has cleaned up
  Scratch(const Scratch&) = delete;

  const std::string& path() const { return path_; }
  pid_t guard() const { return guard_; }

  // A new folder in it, with a name that begins no other one's.
  absl::StatusOr<std::string> MakeFolder();

 private:
  Scratch(std::string path, pid_t guard, int lifeline)
      : path_(std::move(path)), guard_(guard), lifeline_(lifeline) {}

  const std::string path_;
  const pid_t guard_;
  const int lifeline_;  // the guard acts when it is closed
};

}  // namespace skein::supervisor

// `worker doctor`: what the ranks and hosts that mpirun started say of themselves, for `skein
// doctor`.
#pragma once

#include <memory>

#include "CLI/CLI.hpp"

namespace skein::worker {

class DoctorCommand {
 public:
  explicit DoctorCommand(CLI::App& app);
  ~DoctorCommand();

  bool parsed() const;
  // Prints JSON on rank 0. Returns the exit status. A call of all ranks.
  int Run() const;

 private:
  struct Flags;
  std::unique_ptr<Flags> flags_;
};

}  // namespace skein::worker

// `worker probe`: measures the hosts that mpirun started it on.
#pragma once

#include <memory>
#include <string>

#include "CLI/CLI.hpp"

namespace skein::worker {

class ProbeCommand {
 public:
  explicit ProbeCommand(CLI::App& app);
  ~ProbeCommand();

  bool parsed() const;
  // `folder`: where measurements are kept; empty: nowhere. Returns the exit status. A call of all
  // ranks; NCCL's environment is to be set.
  int Run(const std::string& folder) const;

 private:
  struct Flags;
  std::unique_ptr<Flags> flags_;
};

}  // namespace skein::worker

// `worker bench`: its commands and their flags.
#pragma once

#include <memory>

#include "CLI/CLI.hpp"
#include "kernels/cuda/cuda_backend.h"

namespace skein::worker {

// Add --profile and --decode, which a rank has, too.
void AddProfile(CLI::App& app, int& steps);
void AddDecodeForm(CLI::App& app, kernels::DecodeForm& form);

class BenchCommand {
 public:
  // Adds `bench` and its commands to the program's.
  explicit BenchCommand(CLI::App& app);
  ~BenchCommand();

  // Whether it was asked for.
  bool parsed() const;
  // Runs it, with the other ranks where mpirun started this one. Returns the program's exit code;
  // errors go to standard error.
  int Run(bool started_by_mpirun) const;

 private:
  struct Flags;
  const std::unique_ptr<Flags> flags_;
};

}  // namespace skein::worker

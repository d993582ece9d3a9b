// `worker perplexity` and `worker imatrix`: what a model makes of a text.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace skein::worker {

class EvaluateCommand {
 public:
  // Adds both to `app`, which outlives it.
  explicit EvaluateCommand(CLI::App& app);
  ~EvaluateCommand();

  bool parsed() const;
  // Returns the exit code.
  int Run() const;

 private:
  struct Flags;
  std::unique_ptr<Flags> flags_;
};

}  // namespace skein::worker

// A program that a supervisor keeps up: what its keeper decides, done with real processes.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/log/line_writer.h"
#include "supervisor/child.h"
#include "supervisor/exit_status.h"
#include "supervisor/keeper.h"
#include "supervisor/line_splitter.h"
#include "supervisor/scratch.h"

namespace skein::supervisor {

// Never blocks. Not thread-safe; all calls come from the thread that started the process.
class Program {
 public:
  struct Options {
    std::string name;  // "job 1": for the log, and before each line that the program says
    Keeper::Options restart;
    // Gives the command of each start. `folder` belongs to this start and is removed after it.
    // Program sets the command's mark.
    std::function<Child::Options(const std::string& folder)> command;
  };

  // `scratch` and `output` must outlive it.
  Program(Options options, Scratch* scratch, LineWriter* output, absl::Time now);

  const std::string& name() const { return options_.name; }
  const Keeper& keeper() const { return keeper_; }
  bool running() const { return keeper_.state() == Keeper::State::kRunning; }
  bool over() const { return keeper_.state() == Keeper::State::kOver; }

  void Serves(absl::Time now) { keeper_.Serves(now); }
  void End(const Keeper::Pace& pace, absl::Time now) { keeper_.End(pace, now); }
  void Stop() { keeper_.Stop(); }

  // Carries out what the keeper says is due.
  void Advance(absl::Time now);
  absl::Time NextTime() const;

  // The pipe with the process's output, for poll(); -1 when there is nothing to read. PassOn reads
  // it.
  int output() const { return readable_ ? child_->output() : -1; }
  void PassOn();
  // Takes the end of a process that was waited for. Returns whether it is this program's.
  bool TakeEnd(pid_t pid, const ExitStatus& end);
  // Keeps that end from the keeper until then.
  void HoldEnd(absl::Time until) { look_at_ = until; }

 private:
  void Start(absl::Time now);
  void Ended(ExitStatus end, absl::Time now);  // a copy: the child goes

  const Options options_;
  Scratch* const scratch_;
  LineWriter* const output_;
  Keeper keeper_;
  LineSplitter lines_;
  std::string folder_;
  std::unique_ptr<Child> child_;          // while it, or anything that it started, runs
  absl::Time look_at_;                    // when to look for processes that it left
  std::optional<absl::Time> give_up_at_;  // on these processes
  bool readable_ = false;                 // the pipe is not at its end
};

}  // namespace skein::supervisor

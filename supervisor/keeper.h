// When a program that is kept up starts again, and how it is made to end. Pure: decisions only, and
// every call brings the time along.
#pragma once

#include <optional>

#include "absl/time/time.h"
#include "supervisor/exit_status.h"

namespace skein::supervisor {

// One program's life after life. Status 0 (drained) and status 2 (misused) are its last words;
// after any other end it starts again, after a wait that doubles until it has served for a while.
class Keeper {
 public:
  struct Options {
    absl::Duration first_wait = absl::Milliseconds(500);
    absl::Duration longest_wait = absl::Seconds(30);
    absl::Duration reset_after = absl::Seconds(10);  // of service: the next wait is the first one
  };

  enum class State { kWaiting, kRunning, kOver };

  enum class Step {
    kNone,
    kStart,      // the program runs from now on
    kTerminate,  // ask it to end
    kKill,       // end it, and all that it started, by force
  };

  // How fast a program is made to end.
  struct Pace {
    absl::Duration grace;     // for it to end by itself
    absl::Duration patience;  // from the request to the force; with zero it is not asked
    bool lost = false;        // no status that it ends with is its own word
  };

  struct Aftermath {
    absl::Duration served;
    std::optional<absl::Duration> wait;  // before it starts again; unset: it is over
  };

  Keeper(const Options& options, absl::Time now);  // starts at once

  State state() const { return state_; }
  // The last end; of a program that was stopped before it ever ended, nothing.
  const std::optional<ExitStatus>& last_end() const { return last_end_; }
  // Over because it refuses its command line.
  bool misused() const { return misused_; }
  // Its last end was with status 0, and by its own word.
  bool drained() const { return drained_; }
  bool stopped() const { return stopped_; }

  // What is due, once; ask again until it is kNone.
  Step Next(absl::Time now);
  // When Next has something to say again, if nothing happens.
  absl::Time NextTime() const;

  // The program serves; only the first time counts.
  void Serves(absl::Time now);
  // The running program is to end. Of several orders the fastest counts. It starts again.
  void End(const Pace& pace, absl::Time now);
  // It starts no more: over at once if it is waiting, else as soon as it has ended.
  void Stop();
  // Everything of the running program is gone.
  Aftermath Ended(const ExitStatus& end, absl::Time now);

 private:
  struct Ending {
    absl::Time terminate_at;
    absl::Time kill_at;
    bool terminated = false;
    bool killed = false;
    bool lost = false;
  };

  const Options options_;
  State state_ = State::kWaiting;
  absl::Time start_at_;
  absl::Duration wait_;  // the next one
  std::optional<absl::Time> serves_since_;
  std::optional<Ending> ending_;
  bool stopped_ = false;
  bool misused_ = false;
  bool drained_ = false;
  std::optional<ExitStatus> last_end_;
};

}  // namespace skein::supervisor

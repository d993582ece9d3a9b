// Decides when a program that is kept up starts again, and how it is made to end. Pure: it only
// decides, and every call brings the time along.
#pragma once

#include <optional>

#include "absl/time/time.h"
#include "supervisor/exit_status.h"

namespace skein::supervisor {

// The starts and ends of one program. When it ends by itself with status 0 (drained) or 2
// (misused), it stays ended. After any other end it starts again, after a wait that doubles until
// it has served for a while.
class Keeper {
 public:
  struct Options {
    absl::Duration first_wait = absl::Milliseconds(500);
    absl::Duration longest_wait = absl::Seconds(30);
    absl::Duration reset_after = absl::Seconds(10);  // of service; then the wait is first_wait
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
    bool lost = false;        // whatever its status, it is not believed
  };

  struct Aftermath {
    absl::Duration served;
    std::optional<absl::Duration> wait;  // before it starts again; unset: it is over
  };

  Keeper(const Options& options, absl::Time now);  // starts at once

  State state() const { return state_; }
  // How it ended last; nothing if it was stopped before it ever ended.
  const std::optional<ExitStatus>& last_end() const { return last_end_; }
  // Over because it refuses its command line.
  bool misused() const { return misused_; }
  // It ended last with status 0 and by itself: nobody made it end, and it was not lost.
  bool drained() const { return drained_; }
  bool stopped() const { return stopped_; }

  // The step that is due now. Gives each step once: call it until it returns kNone.
  Step Next(absl::Time now);
  // The time at which Next has a step again, if nothing else happens.
  absl::Time NextTime() const;

  // The program serves; only the first time counts.
  void Serves(absl::Time now);
  // Makes the running program end; it starts again. Of several orders the fastest counts.
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

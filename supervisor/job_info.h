// The question that a supervisor asks a coordinator about a job of its own.
#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"

namespace skein::supervisor {

// Identifies one start of a job. The secret shows the coordinator who may ask, and never appears on
// a command line or in a log.
struct JobKey {
  std::string id;      // 16 hexadecimal digits
  std::string secret;  // 64 hexadecimal digits
};

struct JobInfo {
  enum class State {
    kNoAnswer,    // in time, or at all
    kGone,        // nobody listens at the address, on a host that says so
    kCannotTell,  // the coordinator answers, but not this question
    kUnknown,     // no rank of the job has attached
    // From here on, the coordinator knows the job.
    kWaiting,  // for the rest of its ranks
    kLoading,
    kServing,
    kLost,
    kEnded,
  };

  State state = State::kNoAnswer;
  std::string detail;  // why the job is lost or has ended; what failed where there is no answer
};

class JobInfoSource {
 public:
  virtual ~JobInfoSource() = default;
  // Never blocks. Calls `done` once, from any thread, soon after `timeout` at the latest.
  virtual void Query(const JobKey& key, absl::Duration timeout,
                     std::function<void(JobInfo)> done) = 0;
};

}  // namespace skein::supervisor

// Conclusions that a supervisor draws from a coordinator's answers, and from their absence. Pure.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "supervisor/job_info.h"

namespace skein::supervisor {

// Watches one start of a job.
class JobWatch {
 public:
  // A coordinator that answers must know all ranks of the job within `start_timeout`, also after
  // it was itself started anew.
  explicit JobWatch(absl::Duration start_timeout) : start_timeout_(start_timeout) {}

  bool serving() const { return serving_; }

  // Takes an answer. Returns, once, why the job must be ended.
  std::optional<std::string> Observe(const JobInfo& info, absl::Time now);

  // Tells whether a job whose mpirun has ended with status 0 was drained. `answer` is to a question
  // that was asked after that end. Returns nothing when only a later answer may tell. Open MPI 5
  // may end with 0 where ranks were lost with their host.
  std::optional<bool> Drained(JobInfo::State answer) const;

 private:
  const absl::Duration start_timeout_;
  std::optional<absl::Time> incomplete_since_;  // the first of these answers in a row
  bool known_ = false;                          // the coordinator has known it
  bool serving_ = false;
  bool ended_ = false;
  bool condemned_ = false;
};

// Watches one start of a coordinator by one kind of question.
class SilenceWatch {
 public:
  // A coordinator is silent when it gives no answer for `limit`, or no first answer for
  // `start_limit`, in which it loads its model.
  SilenceWatch(absl::Duration limit, absl::Duration start_limit, absl::Time now)
      : limit_(limit), start_limit_(start_limit), heard_(now) {}

  // It is known to be up: the start is over.
  void Started(absl::Time now);

  // Takes whether a question was answered. Returns, once, for how long a silent coordinator gave no
  // answer.
  std::optional<absl::Duration> Observe(bool answered, absl::Time now);

 private:
  const absl::Duration limit_;
  const absl::Duration start_limit_;
  absl::Time heard_;  // the last answer, or the start
  bool started_ = false;
  int unanswered_ = 0;  // in a row
  bool condemned_ = false;
};

}  // namespace skein::supervisor

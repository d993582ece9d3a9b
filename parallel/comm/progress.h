// Tells what a rank does with other ranks, as plain data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "parallel/comm/call.h"

namespace skein::comm {

// A call that was entered and not left.
struct OperationInProgress {
  std::string group;
  Call call;                // without bytes; the peer, where there is one, as a rank of the job
  std::vector<int> others;  // ranks of the job that take part, without this one
  absl::Duration elapsed;   // since it was entered
  absl::Duration still;     // since its thread entered it or last looked for the others
  // The step that it belongs to, where its maker is out of step with the host: see Group::set_step.
  std::optional<int64_t> step;
};

struct Progress {
  // The step that the operation belongs to; without one, the oldest step under way. Unset between
  // steps.
  std::optional<int64_t> step;
  absl::Duration deadline;                       // after which a call of this step counts as hung
  std::optional<OperationInProgress> operation;  // the one that was entered first
  // By group's name: the number of the last collective that was entered; 0 before the first.
  std::map<std::string, int64_t> entered;
};

}  // namespace skein::comm

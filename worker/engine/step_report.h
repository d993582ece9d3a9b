// A replica's leader tells the coordinator of a step.
#pragma once

#include <cstdint>

#include "serving/output.h"

namespace skein::worker {

struct StepReport : serving::StepOutput {
  uint64_t epoch = 0;  // Inbox::Contents::epoch of its requests
};

}  // namespace skein::worker

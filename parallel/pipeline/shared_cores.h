// Carries out steady decodes of a pipeline whose stages share cores, in simulated time. Pure and
// deterministic; any thread.
//
// Of several stages that want a core the first one has it, where it takes no longer than a turn of
// the scheduler; else they have an equal part of it each. With equal stages of c, of which two
// neighbours share a core, and two micro-batches: 4 c a step in the first case, in which one that
// has waited is two stages behind the other one and meets it no more; 6 c in the second, in which
// it stays a stage behind.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "parallel/pipeline/simulate.h"

namespace skein::schedule {

struct SharedCores {
  std::vector<absl::Duration> compute;  // [stages], of a micro-batch, with a core for itself
  std::vector<int32_t> core;            // [stages], from 0
  absl::Duration hop, token_hop;        // as of Costs; senders do not wait
  absl::Duration turn;
};

// `micro_batches` begin together; each begins a step when its tokens of the one before are back.
// At least one stage, micro-batch and step.
Timeline SimulateDecodes(const SharedCores& cores, int32_t micro_batches, int32_t steps);

}  // namespace skein::schedule

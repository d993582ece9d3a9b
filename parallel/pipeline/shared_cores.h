// Carries out steady decodes of a pipeline whose stages share cores, in simulated time. Pure and
// deterministic; any thread.
//
// Stages that want a core at once have an equal part of it each, as a scheduler shares it out over
// many turns: not for stages that take less than a turn, which come one after the other. With equal
// stages of c, of which two neighbours share a core, two micro-batches take 6 c a step: one stays a
// stage behind the other, and has a core together with it in two stages of four.
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
};

// `micro_batches` begin together; each begins a step when its tokens of the one before are back.
// At least one stage, micro-batch and step. Costs some 100 ns for each stage, micro-batch and step,
// times stages.
Timeline SimulateDecodes(const SharedCores& cores, int32_t micro_batches, int32_t steps);

}  // namespace skein::schedule

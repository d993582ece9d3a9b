// Schedules that tests look at.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/pipeline/pipeline_schedule.h"

namespace skein::schedule {

// One step: the chunks of a prompt, of which the last one draws.
inline Schedule Prefill(int32_t stages, int32_t micro_batches) {
  std::vector<MicroBatch> chunks(micro_batches);
  if (!chunks.empty()) chunks.back().draws = true;
  return {MakeOrder(stages, 0, chunks)};
}

}  // namespace skein::schedule

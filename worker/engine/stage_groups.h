// The ranks that a stage exchanges data with.
#pragma once

#include <memory>
#include <vector>

#include "kernels/ops/backend.h"
#include "parallel/comm/communicator.h"

namespace skein::worker {

// Each way has a communicator of its own, so that none waits behind another one's traffic. Null
// where there is nobody.
struct StageGroups {
  comm::Communicator* tp = nullptr;        // the stage's shards, by shard
  comm::Communicator* previous = nullptr;  // the same shard of the stage before, and this rank
  comm::Communicator* next = nullptr;      // this rank, and the same shard of the stage behind
  // Sampled tokens: the first stage, by shard, and behind it the sampling rank. A stage that is
  // alone needs none.
  comm::Communicator* tokens = nullptr;

  std::vector<comm::Communicator*> All() const;
};

// What a Program is bound to: sums and gathers over `tp`; what was sent to the next stage, or
// as tokens, is helped on between operations. Null where there are no groups, which outlive it.
std::unique_ptr<kernels::Collectives> MakeCollectives(const StageGroups& groups);

}  // namespace skein::worker

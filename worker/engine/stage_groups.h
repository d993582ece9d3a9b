// Names the ranks that a stage exchanges data with.
#pragma once

#include <memory>
#include <vector>

#include "kernels/ops/backend.h"
#include "parallel/comm/communicator.h"

namespace skein::worker {

// Each way has a communicator of its own, so that none waits behind another one's traffic. A
// communicator is null where there is nobody.
struct StageGroups {
  comm::Communicator* tp = nullptr;        // the stage's shards, by shard
  comm::Communicator* previous = nullptr;  // the same shard of the stage before, and this rank
  comm::Communicator* next = nullptr;      // this rank, and the same shard of the stage behind
  // Carries sampled tokens. Its ranks are the first stage's, by shard, then the sampling rank. A
  // stage that is alone needs none.
  comm::Communicator* tokens = nullptr;

  std::vector<comm::Communicator*> All() const;
};

// Makes the collectives of a Program. They sum and gather over `tp`, and between operations help on
// what was sent to the next stage, or as tokens. Null where there are no groups, which outlive it.
std::unique_ptr<kernels::Collectives> MakeCollectives(const StageGroups& groups);

}  // namespace skein::worker

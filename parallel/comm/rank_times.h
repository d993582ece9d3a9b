// Where a rank's time goes, as plain data: four activities, of which it is in one at any moment.
//
// - Waiting: no step is in hand; the next order has yet to come from the replica's leader.
// - Bubble: a step is in hand, and the rank waits in an exchange for others to come: for the stage
//   before it, for the tokens of the last one, for a slower shard.
// - Transfer: the rest of its exchanges with others: bytes on their way, copies, sums.
// - Compute: the rest of its steps: kernels, and what the host does to start them.
//
// It is what the host's threads see. Where a device exchanges by itself (NCCL, peer memory, sums in
// a kernel), the host sees a device that is busy: that is compute here, its waits for other devices
// included.
#pragma once

#include "absl/time/time.h"

namespace skein::comm {

struct RankTimes {
  absl::Duration compute, transfer, bubble, waiting;

  absl::Duration Sum() const { return compute + transfer + bubble + waiting; }
  RankTimes operator-(const RankTimes& before) const {
    return {compute - before.compute, transfer - before.transfer, bubble - before.bubble,
            waiting - before.waiting};
  }
  friend bool operator==(const RankTimes&, const RankTimes&) = default;
};

}  // namespace skein::comm

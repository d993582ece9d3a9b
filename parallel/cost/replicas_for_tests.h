// Replicas of an 8B for tests.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/dtype.h"
#include "parallel/cost/stage_cost.h"

namespace skein::cost {

// `pp` stages of `tp` GPUs each, of the first host, layers split evenly.
inline Replica Even(int32_t tp, int32_t pp, int32_t sequences) {
  Replica replica;
  for (int32_t stage = 0; stage < pp; ++stage) {
    Stage& of = replica.stages.emplace_back();
    of.layers = {stage * 32 / pp, (stage + 1) * 32 / pp};
    for (int32_t shard = 0; shard < tp; ++shard) of.sites.push_back({0, stage * tp + shard});
  }
  replica.sequences = sequences;
  replica.micro_batches = std::min(pp, sequences);
  replica.max_micro_batch_rows = 2048;
  replica.activations = replica.hops = DType::kBF16;
  replica.kv_bytes_per_value = 2;
  return replica;
}

}  // namespace skein::cost

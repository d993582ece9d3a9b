// Bytes that a Program takes: what a planner adds up is what a back end allocates.
#pragma once

#include <cstdint>

#include "kernels/ops/batch.h"
#include "kernels/ops/program.h"

namespace skein::kernels {

// Of all weights, packed.
int64_t WeightBytes(const Program& program);

// Rows that a buffer has at most.
int64_t BufferRows(const BufferSpec& buffer, const Limits& limits);
// Whether every batch has one of its own: input and output.
bool IsPerBatch(const Program& program, BufferId id);
// Of all buffers, as floats, each on cache lines of its own; and of ports in another dtype.
int64_t BufferBytes(const Program& program, const Limits& limits);
// Of one batch's input or output in the dtype of hops; 0 where that is the buffer itself.
int64_t HopBytes(const Program& program, BufferId id, const Limits& limits);

// Of rows whose logits of all shards are in one place; 0 where this shard has all.
int64_t GatherBytes(const Program& program);

}  // namespace skein::kernels

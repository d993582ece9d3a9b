// Bytes that a Program takes: what a planner adds up is what a back end allocates.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/device_kind.h"
#include "base/dtype.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/batch.h"
#include "kernels/ops/program.h"
#include "kernels/packing/layout.h"

namespace skein::kernels {

// What a Program takes of a device's memory, in bytes. A GPU's libraries and context come on top.
struct ProgramSizes {
  int64_t weights = 0;    // packed
  int64_t page = 0;       // one page of its cache, in all layers
  int64_t workspace = 0;  // buffers, and what draws work in
};
ProgramSizes SizesOf(DeviceKind kind, const Program& program, const KvSpec& kv,
                     const Limits& limits);
// How many tokens a page holds that suits the device's attention.
int64_t PageTokens(DeviceKind kind);
// What buffers between operations are of, but for logits, which are F32.
DType ActivationDType(DeviceKind kind);

// ---- Of back ends on the host ----

// Rows that a buffer has at most.
int64_t BufferRows(const BufferSpec& buffer, const Limits& limits);
// Where the buffers lie in one piece of memory, each on cache lines of its own.
struct BufferPlaces {
  // Bytes from its begin, [batches][buffers]: buffers as floats, which batches share, but for input
  // and output; and those two in the dtype of hops, where that is another one, else -1.
  std::array<std::vector<int64_t>, Executable::kBatches> buffers, hops;
  int64_t bytes = 0;
};
BufferPlaces PlaceBuffers(const Program& program, const Limits& limits);

// Of rows whose logits of all shards are in one place; 0 where this shard has all.
int64_t GatherBytes(const Program& program);

}  // namespace skein::kernels

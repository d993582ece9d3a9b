// Counts the bytes that a Program takes. A planner adds up the very numbers that a back end
// allocates.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/device_kind.h"
#include "base/dtype.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/batch.h"
#include "kernels/ops/program.h"
#include "kernels/packing/layout.h"

namespace skein::kernels {

// The bytes that a Program takes of a device's memory.
struct ProgramSizes {
  int64_t weights = 0;    // packed
  int64_t page = 0;       // one page of its cache, in all layers
  int64_t workspace = 0;  // buffers, and the memory in which draws work
  int64_t context = 0;    // a GPU's: what its driver and libraries take, whatever the Program
  int64_t graphs = 0;     // captured ones
  int64_t pinned = 0;     // of the host's memory instead, where the device has its own
  int64_t draws = 0;      // the most that a GPU's draws sum up over shards at once
};
// Of limits that CheckLimits takes.
ProgramSizes SizesOf(DeviceKind kind, const Program& program, const KvSpec& kv,
                     const Limits& limits);
// Of a device's memory, what a rank's end of sums over peer memory takes; 0 where so many ranks
// make none.
int64_t PeerSumBytes(DeviceKind kind, int ranks);
// InvalidArgument, with what is possible, for limits that the device's kernels cannot number.
absl::Status CheckLimits(DeviceKind kind, const Limits& limits);
// Returns how many tokens a page holds that suits the device's attention.
int64_t PageTokens(DeviceKind kind);
// Returns the dtype of buffers between operations, for a model whose weights are stored so; logits
// are F32 whatever it is. GPUs compute with F16 where weights are F16, and with BF16 otherwise.
DType ActivationDType(DeviceKind kind, DType weights);

// ---- For back ends on the host ----

// Returns the most rows that a buffer has.
int64_t BufferRows(const BufferSpec& buffer, const Limits& limits);
// The places of the buffers in one piece of memory, each on cache lines of its own.
struct BufferPlaces {
  // Offsets in bytes, [batches][buffers]. `buffers` holds floats; batches share them, but have
  // input and output of their own where hops carry floats. `hops` holds input and output in another
  // dtype of hops, and -1 for all other buffers.
  std::array<std::vector<int64_t>, Executable::kBatches> buffers, hops;
  int64_t bytes = 0;
};
BufferPlaces PlaceBuffers(const Program& program, const Limits& limits);

// Returns the bytes of the inputs of products with quantised weights, as integers; 0 where there
// are none.
int64_t IntegerBytes(const Program& program, const Limits& limits);

// Returns the bytes of the rows of an expert, and of what it makes of them (at most all rows of a
// batch), and of the list of who chose which; 0 where there are no experts.
int64_t ExpertBytes(const Program& program, const Limits& limits);

// Returns the bytes for joining the logits of all shards, some rows at a time; 0 where this shard
// has all logits.
int64_t GatherBytes(const Program& program);

}  // namespace skein::kernels

// What a plan of decode attention holds: see decode_attention.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/decode_sizes.h"
#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/launch.cuh"

namespace skein::kernels::cuda {

// What decides about a sequence; a block of 16 positions is the unit.
struct Sequence {
  int row;
  int slot;
  int first;   // block that it sees
  int length;  // positions; 0: not to decode
};
__device__ inline int EndBlock(const Sequence& s) { return (s.length + kKvBlock - 1) / kKvBlock; }
__device__ inline int Units(const Sequence& s) { return EndBlock(s) - s.first; }

// A worker's run: `count` blocks, from block first + unit of a KV head of a sequence on.
struct Run {
  int sequence;
  int kv_head;
  int unit;
  int count;
};

// A KV head whose blocks several workers have: partials 2 * first + 1, then 2 * w for the others.
struct Split {
  int row;
  int kv_head;
  int first;
  int last;
};

// Parts of the plan; arrays of 16-byte elements.
struct PlanView {
  int* splits_count;
  Split* splits;        // [workers]
  Run* runs;            // [workers]
  Sequence* sequences;  // [sequences]
};
inline constexpr int64_t kPlanHeader = 16;  // bytes

__host__ __device__ inline PlanView ViewOf(const void* plan, int workers) {
  auto* bytes = static_cast<char*>(const_cast<void*>(plan));
  PlanView view;
  view.splits_count = reinterpret_cast<int*>(bytes);
  view.splits = reinterpret_cast<Split*>(bytes + kPlanHeader);
  view.runs = reinterpret_cast<Run*>(view.splits + workers);
  view.sequences = reinterpret_cast<Sequence*>(view.runs + workers);
  return view;
}

// Past the L1 cache, which a kernel that began early may share with what ran before the record was
// written.
template <typename Record>
__device__ Record LoadRecord(const Record* from) {
  static_assert(sizeof(Record) == sizeof(int4));
  const int4 words = __ldcg(reinterpret_cast<const int4*>(from));
  return {words.x, words.y, words.z, words.w};
}

}  // namespace skein::kernels::cuda

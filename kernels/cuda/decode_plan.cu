#include "absl/strings/str_cat.h"
#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/decode_plan.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {
namespace {

constexpr int kPlanThreads = 1024;
// A worker's run is no shorter, since its part is to be put together with others; not tuned.
constexpr int kMinUnits = 4;

// The sum over threads up to this one; `scratch` [33] is shared memory, its last word the total.
__device__ int InclusiveScan(int x, int* scratch) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int step = 1; step < kWarp; step *= 2) {
    const int before = __shfl_up_sync(0xffffffffu, x, step);
    if (lane >= step) x += before;
  }
  if (lane == kWarp - 1) scratch[warp] = x;
  __syncthreads();
  if (threadIdx.x == 0) {
    int total = 0;
    for (int w = 0; w < kPlanThreads / kWarp; ++w) {
      const int own = scratch[w];
      scratch[w] = total;
      total += own;
    }
    scratch[kWarp] = total;
  }
  __syncthreads();
  return x + scratch[warp];
}

__device__ Sequence Describe(const PlanDecode& op, int s) {
  Sequence sequence = {op.batch.row_begin[s], op.batch.slots[s], 0, 0};
  if (op.batch.row_begin[s + 1] - sequence.row != 1) return sequence;
  sequence.length = op.batch.lengths[sequence.slot];
  if (op.window > 0) sequence.first = max(0, sequence.length - op.window) / kKvBlock;
  return sequence;
}

// Where unit `unit` of the whole list lies. begins [n + 1]: each sequence's first unit.
__device__ Run Locate(const int* begins, int n, int kv_heads, int unit) {
  int low = 0;  // begins[low] <= unit < begins[high]
  int high = n;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (begins[middle] <= unit ? low : high) = middle;
  }
  const int of_head = (begins[low + 1] - begins[low]) / kv_heads;
  const int in_sequence = unit - begins[low];
  return {low, in_sequence / of_head, in_sequence % of_head, 0};
}

// One block. Adds up the sequences' units, then each thread finds where a worker's run begins, and
// which KV heads are split: the boundary that is the first one inside a head lists it.
__global__ void __launch_bounds__(kPlanThreads) PlanKernel(PlanDecode op) {
  extern __shared__ int begins[];  // [sequences + 1]
  __shared__ int scratch[kWarp + 1];
  __shared__ int splits;
  WaitForPrevious();
  LetNextBegin();
  const int workers = DecodeWorkers(op.multiprocessors);
  const PlanView plan = ViewOf(op.plan, workers);
  const int n = op.batch.sequences;
  if (threadIdx.x == 0) splits = begins[0] = 0;

  int total = 0;
  for (int base = 0; base < n; base += kPlanThreads) {
    const int s = base + static_cast<int>(threadIdx.x);
    int units = 0;
    if (s < n) {
      const Sequence sequence = Describe(op, s);
      plan.sequences[s] = sequence;
      units = Units(sequence) * op.kv_heads;
    }
    const int sum = InclusiveScan(units, scratch);
    if (s < n) begins[s + 1] = total + sum;
    total += scratch[kWarp];
    __syncthreads();
  }

  const int each = max(kMinUnits, (total + workers - 1) / workers);
  for (int w = static_cast<int>(threadIdx.x); w < workers; w += kPlanThreads) {
    Run run = {};
    const int64_t begin = int64_t{w} * each;
    if (begin < total) {
      run = Locate(begins, n, op.kv_heads, static_cast<int>(begin));
      run.count = min(each, total - static_cast<int>(begin));
      if (run.unit > 0 && run.unit <= each) {
        const int units = (begins[run.sequence + 1] - begins[run.sequence]) / op.kv_heads;
        const int end = static_cast<int>(begin) - run.unit + units;
        plan.splits[atomicAdd(&splits, 1)] = {op.batch.row_begin[run.sequence], run.kv_head, w - 1,
                                              (end - 1) / each};
      }
    }
    plan.runs[w] = run;
  }
  __syncthreads();
  if (threadIdx.x == 0) *plan.splits_count = splits;
}

}  // namespace

absl::Status Enqueue(const PlanDecode& op, Stream stream) {
  if (op.kv_heads <= 0 || op.multiprocessors <= 0) {
    return absl::InvalidArgumentError("PlanDecode: KV heads and multiprocessors are positive");
  }
  if (!Aligned16({op.plan})) {
    return absl::InvalidArgumentError("PlanDecode: the plan is 16-byte aligned");
  }
  static_assert((kMaxDecodeSequences + 1) * sizeof(int) <= kDefaultSharedBytes);
  const size_t shared_bytes = (static_cast<size_t>(op.batch.sequences) + 1) * sizeof(int);
  if (op.batch.sequences > kMaxDecodeSequences) {
    return absl::UnimplementedError(absl::StrCat("PlanDecode of ", op.batch.sequences,
                                                 " sequences: ", kMaxDecodeSequences, " at most"));
  }
  return Launch(PlanKernel, {"PlanDecode", dim3(1), dim3(kPlanThreads), shared_bytes}, stream, op);
}

const void* KernelOfDecodePlan() { return reinterpret_cast<const void*>(PlanKernel); }

}  // namespace skein::kernels::cuda

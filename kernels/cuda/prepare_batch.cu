#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/prepare_batch.h"

namespace skein::kernels::cuda {
namespace {

constexpr int kThreads = 1024;

// out[i] = from[i], and `padding` behind `count`.
template <typename T>
__device__ void Fill(T* out, const T* from, int count, int padded, T padding) {
  for (int i = static_cast<int>(threadIdx.x); i < padded; i += kThreads) {
    out[i] = i < count ? from[i] : padding;
  }
}

__device__ void Set(int32_t* out, const SetPair* pairs, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    out[pairs[i].index] = pairs[i].value;
  }
}

__global__ void __launch_bounds__(kThreads) PrepareBatchKernel(PrepareBatch op) {
  WaitForPrevious();
  LetNextBegin();
  const BatchUpload& upload = op.upload;
  const auto ints = [&](int64_t place) {
    return reinterpret_cast<const int32_t*>(op.block + place);
  };
  const auto pairs = [&](int64_t place) {
    return reinterpret_cast<const SetPair*>(op.block + place);
  };
  Set(op.newest_tokens, op.drawn, op.drawn_count);
  __syncthreads();
  Set(op.newest_tokens, pairs(upload.set_tokens()), upload.tokens);
  __syncthreads();
  Set(op.page_tables, pairs(upload.set_pages()), upload.pages);
  const int32_t* const slots = ints(upload.slots());
  for (int s = static_cast<int>(threadIdx.x); s < upload.sequences; s += kThreads) {
    op.lengths[slots[s]] = ints(upload.lengths())[s];
  }
  for (int r = static_cast<int>(threadIdx.x); r < op.padded_rows; r += kThreads) {
    const int32_t id = r < upload.rows ? ints(upload.token_ids())[r] : 0;
    op.token_ids[r] = id < 0 ? op.newest_tokens[-1 - id] : id;
  }
  Fill(op.positions, ints(upload.positions()), upload.rows, op.padded_rows, 0);
  Fill(op.kv_slots, reinterpret_cast<const int64_t*>(op.block + upload.kv_slots()), upload.rows,
       op.padded_rows, int64_t{-1});
  Fill(op.row_begin, ints(upload.row_begin()), upload.sequences + 1, op.padded_sequences + 1,
       upload.rows);
  Fill(op.slots, slots, upload.sequences, op.padded_sequences, 0);
  Fill(op.output_rows, ints(upload.output_rows()), upload.outputs, op.padded_outputs, -1);
}

}  // namespace

absl::Status Enqueue(const PrepareBatch& op, Stream stream) {
  return Launch(PrepareBatchKernel, {"PrepareBatch", dim3(1), dim3(kThreads)}, stream, op);
}

const void* KernelOfPrepareBatch() { return reinterpret_cast<const void*>(PrepareBatchKernel); }

}  // namespace skein::kernels::cuda

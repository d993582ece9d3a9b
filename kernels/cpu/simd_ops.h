// The CPU back end's inner loops, compiled once per instruction set.
//
// Every output has one order of operations that does not depend on the vectors' width: a product's
// or an attention's sum is one chain of fused multiply-adds per element, with different elements in
// different lanes; where a sum runs over lanes it runs over kLanes of them, joined in one order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/packing/layout.h"
#include "kernels/packing/quantized_rows.h"

namespace skein::kernels {

// Lists memory that a thread needs soon: blocks of `bytes`, a multiple of a cache line.
struct FetchList {
  const std::byte* const* blocks = nullptr;
  int64_t count = 0;
  int64_t bytes = 0;
};

// A product takes up to so many input rows at a time; more are taken one such block after the
// other.
inline constexpr int64_t kRowsAtOnce = 6;

// Multiplies a tile of a matrix with rows of input. More tasks share it as parts, into which its
// blocks of rows are cut.
struct TileProduct {
  const float* in = nullptr;  // [rows, cols]
  QuantizedRows integers;     // the same; quantised tiles multiply these where they are not null
  int64_t rows = 0;
  int64_t cols = 0;
  int32_t inner_blocks = 1;
  const int64_t* inner_bounds = nullptr;  // [inner_blocks + 1], see WeightSpec
  // [cols, kTileRows] of dtype, permuted by PositionInTile; units where it is quantised.
  const std::byte* tile = nullptr;
  DType dtype = DType::kF32;
  float* out = nullptr;  // [rows, out_stride], of which out_cols <= kTileRows columns are written
  int64_t out_stride = 0;
  int64_t out_cols = 0;
  int64_t part = 0;
  int64_t parts = 1;
  FetchList fetch;  // goes into the core's L2 cache meanwhile; ignored where there is one row
};

// The keys and values that a row attends to with one KV head.
struct KvSlots {
  const std::byte* pages = nullptr;  // of the layer and KV head: page p is at p * page_stride
  const int32_t* page_table = nullptr;
  int64_t context = 0;  // slots
  int64_t first = 0;    // slot that is seen
};

// The query heads of one row that share a KV head.
struct RowAttention {
  const float* queries = nullptr;  // [heads, head_dim]
  int64_t heads = 0;
  int64_t head_dim = 0;
  float scale = 1.0f;
  float softcap = 0.0f;  // of scaled scores; 0: none
  KvSlots slots;
  KvSlots next;  // what this thread probably attends to next; it is fetched on the way
  KvDType dtype = KvDType::kF32;
  KvPageLayout layout;
  int64_t page_size = 0;
  float* scores = nullptr;    // scratch [kHeadsAtOnce, scores_stride]
  int64_t scores_stride = 0;  // >= context + kLanes - 1, a multiple of kLanes
  float* out = nullptr;       // [heads, head_dim]
};

// So many query heads share the loading of a key: 4 chains of AVX-512 registers (8 of AVX2).
inline constexpr int64_t kHeadsAtOnce = 4;

struct SimdOps {
  const char* name;
  void (*multiply)(const TileProduct& product);
  // Writes in [n] as row `row` of `out`, whose cols are n.
  void (*quantize)(const float* in, int64_t n, const QuantizedRows& out, int64_t row);
  void (*attend)(const RowAttention& attention);
  // out[i] = a[i] + b[i]; `out` may be one of them.
  void (*add)(const float* a, const float* b, int64_t n, float* out);
  // out[i] += scale * in[i].
  void (*add_scaled)(const float* in, float scale, int64_t n, float* out);
  void (*rms_norm)(const float* in, const float* gain, float eps, int64_t n, float* out);
  // x *= scale, and x = cap * tanh(x / cap), in place.
  void (*scale)(float* data, float scale, int64_t n);
  void (*soft_cap)(float* data, float cap, int64_t n);
  // out[i] = activation(gate[i]) * up[i].
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* out);
  void (*geglu_tanh)(const float* gate, const float* up, int64_t n, float* out);
  // Rotates the pairs (a[i], b[i]) by angles of these cosines and sines.
  void (*rotate)(float* a, float* b, const float* cosines, const float* sines, int64_t n);
  // Reads `bytes` (a multiple of 1024, 64-byte aligned) and returns something that depends on all.
  uint64_t (*read)(const std::byte* data, int64_t bytes);
  // Multiplies and adds in registers; returns the number of operations, and in *sink something that
  // depends on all.
  int64_t (*multiply_add)(int64_t rounds, float* sink);
  // The same with bytes, as products of quantised weights do it.
  int64_t (*multiply_bytes)(int64_t rounds, float* sink);
};

// Returns the best that the CPU has among `targets`, a mask of HWY_* bits (0: all); null when it
// has no fused multiply-add. Sets Highway's choice for the whole process.
const SimdOps* ChooseSimdOps(int64_t targets);

}  // namespace skein::kernels

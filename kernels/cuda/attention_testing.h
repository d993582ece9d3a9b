// A batch of sequences with paged keys and values, on the host and on the device, and what
// attention over it gives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/cuda/comparison.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/paged_batch.h"

namespace skein::kernels::cuda {

struct AttentionShape {
  DType dtype = DType::kBF16;
  int32_t heads = 4;
  int32_t kv_heads = 2;
  int32_t head_dim = 64;
  int32_t page_size = 16;
  int32_t window = 0;
  bool int8 = false;  // the cache
  float values = 1;   // no value is larger; a power of two

  float scale() const;
  std::string Name() const;
};

// A sequence of the batch: positions in the cache, this batch's rows included.
struct Piece {
  int32_t rows = 1;
  int32_t length = 1;
  // Positions that the first query head of each KV head, in the last row, attends to so much that
  // none of them can be left out unseen.
  std::vector<int32_t> needles = {};
};

// Shapes that both kinds of attention are held against.
std::vector<AttentionShape> AttentionShapes();

// Pages lie anywhere in the cache, slots in any order; what no sequence owns is NaN, its scale
// where elements are int8.
class PagedProblem {
 public:
  PagedProblem(const AttentionShape& shape, std::vector<Piece> pieces, uint32_t seed = 1);

  const AttentionShape& shape() const { return shape_; }
  int64_t rows() const { return row_begin_.back(); }
  PagedBatch batch() const;
  KvLayer kv() const;
  // Queries [rows, q_stride()], with a gap after each row; out likewise.
  int64_t q_stride() const { return int64_t{shape_.heads} * shape_.head_dim + 8; }
  const void* q() const { return q_on_device_.data(); }
  DeviceBytes NewOut() const;

  // Of the sequences that `wanted` names: what their rows' heads should be.
  Expected Reference(const std::vector<bool>& wanted) const;
  // The same rows of an output.
  std::vector<float> Rows(const DeviceBytes& out, const std::vector<bool>& wanted) const;
  // Of all others, and gaps: whether nothing was written.
  bool OthersAreUntouched(const DeviceBytes& out, const std::vector<bool>& wanted) const;
  // Sequences by their number of rows.
  std::vector<bool> WithOneRow() const;
  std::vector<bool> WithSeveralRows() const;

 private:
  void Attend(int64_t sequence, int64_t row, int64_t head, Expected& expected) const;
  void PlantNeedles(size_t sequence);
  // Puts a key (part 0) or a value, `vector`, into the cache's image, where the layout says.
  void Store(float* vector, int64_t page, int head, int offset, int part,
             std::vector<char>& cache) const;
  // Of a sequence's position, [kv_heads, 2, head_dim] on the host.
  const float* KeyAt(int64_t sequence, int64_t position, int64_t kv_head) const;

  AttentionShape shape_;
  std::vector<Piece> pieces_;
  std::vector<int32_t> row_begin_;
  std::vector<float> q_values_;
  std::vector<std::vector<float>> kv_values_;  // by sequence, as the cache keeps them
  int64_t table_stride_ = 1;
  DeviceBytes cache_;
  DeviceBytes q_on_device_;
  DeviceArray<int32_t> row_begin_on_device_;
  std::vector<int32_t> slots_, lengths_, tables_;
  DeviceArray<int32_t> slots_on_device_, lengths_on_device_, tables_on_device_;
};

}  // namespace skein::kernels::cuda

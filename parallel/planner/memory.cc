#include "parallel/planner/memory.h"

#include <algorithm>

#include "kernels/packing/layout.h"
#include "parallel/plan/plan.h"

namespace skein::plan {
namespace {

int64_t VectorBytes(int64_t size) {
  return kernels::PackedBytes({kernels::WeightSpec::Kind::kVector, 1, size});
}

int64_t MatrixBytes(const model::ModelConfig& model, int64_t rows, int64_t cols) {
  return kernels::PackedBytes({kernels::WeightSpec::Kind::kMatrix, rows, cols, model.dtype});
}

// Columns of q, k and v, joined.
int64_t QkvSize(const model::ModelConfig& model, const ShardSpec& shard) {
  return (shard.heads.size() + 2 * shard.kv_heads.size()) * model.head_dim;
}

int64_t LayerBytes(const model::ModelConfig& model, const ShardSpec& shard) {
  const int64_t hidden = model.hidden_size;
  return 2 * VectorBytes(hidden) + MatrixBytes(model, QkvSize(model, shard), hidden) +
         MatrixBytes(model, hidden, shard.heads.size() * model.head_dim) +
         MatrixBytes(model, 2 * shard.ffn.size(), hidden) +
         MatrixBytes(model, hidden, shard.ffn.size());
}

int64_t WeightBytes(const model::ModelConfig& model, const ShardSpec& shard, Range layers) {
  const bool first = layers.begin == 0;
  const bool last = layers.end == model.num_layers;
  const int64_t table = MatrixBytes(model, shard.vocab_stride, model.hidden_size);
  int64_t bytes = layers.size() * LayerBytes(model, shard) + VectorBytes(model.head_dim / 2);
  if (first) bytes += table;
  if (last) bytes += VectorBytes(model.hidden_size);
  if (last && !(first && model.tie_word_embeddings)) bytes += table;
  return bytes;
}

// One micro-batch's buffers, F32: residual, normed and delta, the attention's, the MLP's; on the
// last stage the logits of every sequence's row, and of some rows those of all shards, for draws
// that need them. What comes from the stage before, the residual, and what goes to the next one are
// two batches' each.
int64_t ActivationBytes(const model::ModelConfig& model, const ShardSpec& shard, Range layers,
                        const ReplicaLimits& limits) {
  const int64_t row = 3 * model.hidden_size + QkvSize(model, shard) +
                      shard.heads.size() * model.head_dim + 3 * shard.ffn.size();
  const int64_t hop = limits.max_micro_batch_rows * model.hidden_size;
  int64_t elements = limits.max_micro_batch_rows * row;
  if (layers.begin > 0) elements += hop;
  if (layers.end < model.num_layers) {
    elements += 2 * hop;
  } else {
    const int32_t outputs = MaxOutputs(limits.max_sequences, limits.max_micro_batch_rows);
    elements += outputs * (model.hidden_size + shard.vocab_stride);
    if (limits.tensor > 1) {
      elements += kernels::kGatheredRows * (1 + 2 * limits.tensor) * shard.vocab_stride;
    }
  }
  return DTypeBytes(DType::kF32, elements);
}

}  // namespace

RankMemory MemoryOfRank(const model::ModelConfig& model, const ShardSpec& shard, Range layers,
                        const ReplicaLimits& limits) {
  RankMemory memory;
  memory.weight_bytes = WeightBytes(model, shard, layers);
  memory.page_bytes = kernels::KvBytes({.layers = layers.size(),
                                        .kv_heads = shard.kv_heads.size(),
                                        .head_dim = model.head_dim,
                                        .page_size = limits.page_size,
                                        .pages = 1,
                                        .dtype = limits.kv_dtype});
  memory.kv_bytes = limits.pages * memory.page_bytes;
  memory.swap_bytes = limits.swap_pages * memory.page_bytes;
  memory.activation_bytes = ActivationBytes(model, shard, layers, limits);
  return memory;
}

}  // namespace skein::plan

// The part of a model that a rank of a stage holds.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/range.h"
#include "model/config/model_config.h"

namespace skein::plan {

// The split of one layer over tp_size shards: query heads, KV heads (replicated where there are
// fewer than shards), the MLP's inner dimension, and the vocabulary (padded to equal parts).
struct ShardSpec {
  Range heads;
  Range kv_heads;  // of the model
  Range ffn;
  // Rows of the embedding and of the output that this shard holds; the last ones may be short or
  // empty. `vocab_stride` rows are computed by every shard, so that logits join without gaps.
  Range vocab;
  int64_t vocab_stride = 0;
  // The number of blocks in which a row-parallel product sums this shard's part (see WeightSpec).
  // It is 8 / tp_size where that divides, so that 1, 2, 4 and 8 shards join the same 8 sums in the
  // same tree; else 1. Log probabilities sum the shard's part of the vocabulary in as many blocks,
  // each of vocab_stride / inner_blocks rows.
  int32_t inner_blocks = 8;
  // Where these begin in what this shard has of a product's columns, and where the last one ends,
  // [inner_blocks + 1], as kernels::WeightSpec has them: of the matrix that reads attention and of
  // the one that reads the MLP's activations. Empty where the model is not quantised. Sum i of 8
  // has blocks floor(i n / 8) to floor((i + 1) n / 8) of a row's n quantised blocks.
  std::vector<int64_t> attention_bounds;
  std::vector<int64_t> mlp_bounds;

  // The split of a layer's experts. With expert parallelism a shard has a part of them, of which
  // fewer shards have a part of each one; inner blocks and their bounds as above.
  Range experts;
  Range expert_ffn;  // of each one's inner dimension
  int32_t expert_inner_blocks = 8;
  std::vector<int64_t> expert_bounds;
  Range shared_ffn;  // of the shared one's
  std::vector<int64_t> shared_bounds;

  friend bool operator==(const ShardSpec&, const ShardSpec&) = default;
};

// How many of so many sequences a replica has: they are spread evenly, the first replicas take what
// is left.
constexpr int64_t SequencesOfReplica(int64_t sequences, int32_t dp_size, int32_t dp_rank) {
  return (sequences + dp_size - 1 - dp_rank) / dp_size;
}

// True if tp_size shards give the same bits as 1, 2, 4 and 8 shards do. Other numbers sum in an
// order of their own, and agree only with themselves.
constexpr bool SumsAgreeAcrossLayouts(int32_t tp_size) { return tp_size > 0 && 8 % tp_size == 0; }

// InvalidArgument when tp_size shards cannot split the model, with the numbers that do not divide;
// where blocks of quantised weights are in the way, with the numbers of shards that are possible.
// With ep_size > 1 the shards are so many groups of neighbours, of which each has as many of the
// experts, and splits those over its shards.
absl::Status CheckTensorParallel(const model::ModelConfig& model, int32_t tp_size,
                                 int32_t ep_size = 1);
// InvalidArgument as above, and for a shard that is not in [0, tp_size).
absl::StatusOr<ShardSpec> MakeShard(const model::ModelConfig& model, int32_t tp_size,
                                    int32_t tp_rank, int32_t ep_size = 1);

// The parts of inner dimensions that the shard with the most of them has: of an MLP, of all of a
// layer's experts, and of the shared one.
int64_t LargestFfn(const model::ModelConfig& model, int32_t tp_size);
int64_t LargestExperts(const model::ModelConfig& model, int32_t tp_size);
int64_t LargestShared(const model::ModelConfig& model, int32_t tp_size);

// The layers of one stage. Where layers do not divide by stages, earlier stages take one more.
// Needs 0 <= stage < pp_size.
Range StageLayers(int64_t num_layers, int32_t pp_size, int32_t stage);

// The layers of one stage, split so that the slowest stage has as little to do as possible. The
// last stage also multiplies by the output matrix, which in small models with large vocabularies
// costs as much as several layers. Where several splits are as good, the last stage has the most
// layers. The stages before it share theirs as StageLayers does. 1 <= pp_size <= layers.
Range BalancedStageLayers(const model::ModelConfig& model, int32_t pp_size, int32_t stage);

}  // namespace skein::plan

#include "parallel/plan/shard.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::plan {

namespace {

// Of so many blocks of a row those before shard `shard` of tp_size. Where blocks do not divide by
// shards, some shards have one more.
constexpr int64_t BlocksBefore(int64_t blocks, int32_t tp_size, int64_t shard) {
  return shard * blocks / tp_size;
}

// Why blocks of quantised weights are in the way of so many shards; empty where they are not.
std::string WhyBlocksForbid(const model::ModelConfig& model, int32_t tp_size) {
  const int64_t attention = model.num_heads * model.head_dim;
  if (attention / tp_size % model.stored.attention_block != 0) {
    return absl::StrCat(attention / tp_size, " columns of a shard's heads cut a block of ",
                        model.stored.attention_block, " quantised weights");
  }
  const int64_t blocks = model.intermediate_size / model.stored.mlp_block;
  if (blocks < tp_size) {
    return absl::StrCat("the MLP's inner dimension of ", model.intermediate_size, " has ", blocks,
                        " blocks of ", model.stored.mlp_block, " quantised weights");
  }
  return "";
}

absl::Status CheckHeads(const model::ModelConfig& model, int32_t tp_size) {
  if (tp_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat("tp=", tp_size, ": at least 1 shard is needed"));
  }
  if (model.num_heads % tp_size != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tp=", tp_size, ": ", model.num_heads, " heads cannot be split into ", tp_size, " shards"));
  }
  if (model.num_kv_heads % tp_size != 0 && tp_size % model.num_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("tp=", tp_size, ": ", model.num_kv_heads,
                                                   " KV heads can neither be split into ", tp_size,
                                                   " shards nor be repeated evenly over them"));
  }
  return absl::OkStatus();
}

std::string PossibleShards(const model::ModelConfig& model) {
  std::string possible;
  constexpr int64_t kMost = 64;
  for (int32_t tp_size = 1; tp_size <= std::min(model.num_heads, kMost); ++tp_size) {
    if (!CheckHeads(model, tp_size).ok() || !WhyBlocksForbid(model, tp_size).empty()) continue;
    absl::StrAppend(&possible, possible.empty() ? "" : ", ", tp_size);
  }
  return possible.empty() ? "none" : "tp=" + possible;
}

// What shard `shard` has of a row's blocks, in inner blocks.
std::vector<int64_t> BoundsOf(int64_t columns, int64_t block, int32_t tp_size, int32_t shard,
                              int32_t inner_blocks) {
  const int64_t first = int64_t{shard} * inner_blocks;
  const int32_t all = tp_size * inner_blocks;
  const auto before = [&](int64_t inner) {
    return BlocksBefore(columns / block, all, inner) * block;
  };
  std::vector<int64_t> bounds;
  for (int64_t i = 0; i <= inner_blocks; ++i) bounds.push_back(before(first + i) - before(first));
  return bounds;
}

}  // namespace

absl::Status CheckTensorParallel(const model::ModelConfig& model, int32_t tp_size) {
  SKEIN_RETURN_IF_ERROR(CheckHeads(model, tp_size));
  if (model.stored.any()) {
    const std::string why = WhyBlocksForbid(model, tp_size);
    if (why.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("tp=", tp_size, ": ", why, "; possible are ", PossibleShards(model)));
  }
  if (model.intermediate_size % tp_size != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tp=", tp_size, ": the MLP's inner dimension of ", model.intermediate_size,
                     " cannot be split into ", tp_size, " shards"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardSpec> MakeShard(const model::ModelConfig& model, int32_t tp_size,
                                    int32_t shard) {
  SKEIN_RETURN_IF_ERROR(CheckTensorParallel(model, tp_size));
  if (shard < 0 || shard >= tp_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", shard, " is not one of tp=", tp_size, ": 0 to ", tp_size - 1));
  }
  const auto part = [&](int64_t size) {
    const int64_t each = size / tp_size;
    return Range{shard * each, (shard + 1) * each};
  };
  ShardSpec spec;
  spec.heads = part(model.num_heads);
  spec.ffn = part(model.intermediate_size);
  if (tp_size <= model.num_kv_heads) {
    spec.kv_heads = part(model.num_kv_heads);
  } else {
    const int64_t head = shard / (tp_size / model.num_kv_heads);
    spec.kv_heads = {head, head + 1};
  }
  spec.inner_blocks = SumsAgreeAcrossLayouts(tp_size) ? 8 / tp_size : 1;
  if (model.stored.any()) {
    const int64_t block = model.stored.mlp_block;
    const int64_t blocks = model.intermediate_size / block;
    spec.ffn = {BlocksBefore(blocks, tp_size, shard) * block,
                BlocksBefore(blocks, tp_size, shard + 1) * block};
    spec.mlp_bounds = BoundsOf(model.intermediate_size, block, tp_size, shard, spec.inner_blocks);
    spec.attention_bounds = BoundsOf(model.num_heads * model.head_dim, model.stored.attention_block,
                                     tp_size, shard, spec.inner_blocks);
  }
  const int64_t blocks = int64_t{spec.inner_blocks} * tp_size;
  spec.vocab_stride = (model.vocab_size + blocks - 1) / blocks * spec.inner_blocks;
  spec.vocab.begin = std::min(shard * spec.vocab_stride, model.vocab_size);
  spec.vocab.end = std::min(spec.vocab.begin + spec.vocab_stride, model.vocab_size);
  return spec;
}

int64_t LargestFfn(const model::ModelConfig& model, int32_t tp_size) {
  if (!model.stored.any()) return model.intermediate_size / tp_size;
  const int64_t blocks = model.intermediate_size / model.stored.mlp_block;
  return (blocks + tp_size - 1) / tp_size * model.stored.mlp_block;
}

Range StageLayers(int64_t num_layers, int32_t pp_size, int32_t stage) {
  const int64_t each = num_layers / pp_size;
  const int64_t longer = num_layers % pp_size;  // stages with one more
  const int64_t begin = stage * each + std::min<int64_t>(stage, longer);
  return {begin, begin + each + (stage < longer ? 1 : 0)};
}

Range BalancedStageLayers(const model::ModelConfig& model, int32_t pp_size, int32_t stage) {
  if (pp_size == 1) return {0, model.num_layers};
  const int64_t layer =
      model.hidden_size *
      (2 * (model.num_heads + model.num_kv_heads) * model.head_dim + 3 * model.intermediate_size);
  const int64_t output = model.vocab_size * model.hidden_size;
  // In weights, of the slowest stage when the last one has `last` layers.
  const auto slowest = [&](int64_t last) {
    const int64_t others = model.num_layers - last;
    return std::max((others + pp_size - 2) / (pp_size - 1) * layer, last * layer + output);
  };
  int64_t last = 1;
  for (int64_t candidate = 2; candidate <= model.num_layers - (pp_size - 1); ++candidate) {
    if (slowest(candidate) <= slowest(last)) last = candidate;
  }
  const int64_t others = model.num_layers - last;
  if (stage == pp_size - 1) return {others, model.num_layers};
  return StageLayers(others, pp_size - 1, stage);
}

}  // namespace skein::plan

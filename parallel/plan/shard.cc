#include "parallel/plan/shard.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::plan {

absl::Status CheckTensorParallel(const model::ModelConfig& model, int32_t tensor) {
  if (tensor < 1) {
    return absl::InvalidArgumentError(absl::StrCat("tp=", tensor, ": at least 1 shard is needed"));
  }
  if (model.num_heads % tensor != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tp=", tensor, ": ", model.num_heads, " heads cannot be split into ", tensor, " shards"));
  }
  if (model.num_kv_heads % tensor != 0 && tensor % model.num_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("tp=", tensor, ": ", model.num_kv_heads,
                                                   " KV heads can neither be split into ", tensor,
                                                   " shards nor be repeated evenly over them"));
  }
  if (model.intermediate_size % tensor != 0) {
    return absl::InvalidArgumentError(absl::StrCat("tp=", tensor, ": the MLP's inner dimension of ",
                                                   model.intermediate_size,
                                                   " cannot be split into ", tensor, " shards"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardSpec> MakeShard(const model::ModelConfig& model, int32_t tensor,
                                    int32_t shard) {
  SKEIN_RETURN_IF_ERROR(CheckTensorParallel(model, tensor));
  if (shard < 0 || shard >= tensor) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", shard, " is not one of tp=", tensor, ": 0 to ", tensor - 1));
  }
  const auto part = [&](int64_t size) {
    const int64_t each = size / tensor;
    return Range{shard * each, (shard + 1) * each};
  };
  ShardSpec spec;
  spec.heads = part(model.num_heads);
  spec.ffn = part(model.intermediate_size);
  if (tensor <= model.num_kv_heads) {
    spec.kv_heads = part(model.num_kv_heads);
  } else {
    const int64_t head = shard / (tensor / model.num_kv_heads);
    spec.kv_heads = {head, head + 1};
  }
  spec.inner_blocks = SumsAgreeAcrossLayouts(tensor) ? 8 / tensor : 1;
  const int64_t blocks = int64_t{spec.inner_blocks} * tensor;
  spec.vocab_stride = (model.vocab_size + blocks - 1) / blocks * spec.inner_blocks;
  spec.vocab.begin = std::min(shard * spec.vocab_stride, model.vocab_size);
  spec.vocab.end = std::min(spec.vocab.begin + spec.vocab_stride, model.vocab_size);
  return spec;
}

Range StageLayers(int64_t num_layers, int32_t pipeline, int32_t stage) {
  const int64_t each = num_layers / pipeline;
  const int64_t longer = num_layers % pipeline;  // stages with one more
  const int64_t begin = stage * each + std::min<int64_t>(stage, longer);
  return {begin, begin + each + (stage < longer ? 1 : 0)};
}

Range BalancedStageLayers(const model::ModelConfig& model, int32_t pipeline, int32_t stage) {
  if (pipeline == 1) return {0, model.num_layers};
  const int64_t layer =
      model.hidden_size *
      (2 * (model.num_heads + model.num_kv_heads) * model.head_dim + 3 * model.intermediate_size);
  const int64_t output = model.vocab_size * model.hidden_size;
  // In weights, of the slowest stage when the last one has `last` layers.
  const auto slowest = [&](int64_t last) {
    const int64_t others = model.num_layers - last;
    return std::max((others + pipeline - 2) / (pipeline - 1) * layer, last * layer + output);
  };
  int64_t last = 1;
  for (int64_t candidate = 2; candidate <= model.num_layers - (pipeline - 1); ++candidate) {
    if (slowest(candidate) <= slowest(last)) last = candidate;
  }
  const int64_t others = model.num_layers - last;
  if (stage == pipeline - 1) return {others, model.num_layers};
  return StageLayers(others, pipeline - 1, stage);
}

}  // namespace skein::plan

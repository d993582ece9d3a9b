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
  spec.vocab_stride = (model.vocab_size + tensor - 1) / tensor;
  spec.vocab.begin = std::min(shard * spec.vocab_stride, model.vocab_size);
  spec.vocab.end = std::min(spec.vocab.begin + spec.vocab_stride, model.vocab_size);
  spec.inner_blocks = SumsAgreeAcrossLayouts(tensor) ? 8 / tensor : 1;
  return spec;
}

Range StageLayers(int64_t num_layers, int32_t pipeline, int32_t stage) {
  const int64_t each = num_layers / pipeline;
  const int64_t longer = num_layers % pipeline;  // stages with one more
  const int64_t begin = stage * each + std::min<int64_t>(stage, longer);
  return {begin, begin + each + (stage < longer ? 1 : 0)};
}

}  // namespace skein::plan

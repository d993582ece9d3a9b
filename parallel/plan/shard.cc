#include "parallel/plan/shard.h"

#include <algorithm>
#include <string>
#include <utility>
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

// An inner dimension that shards split: of what, how long, its blocks, and over how many shards.
struct Inner {
  const char* what;
  int64_t size = 0;
  int64_t block = 1;
  int32_t shards = 1;

  int64_t blocks() const { return size / block; }
};

Inner MlpOf(const model::ModelConfig& model, int32_t tp_size) {
  return {"the MLP's", model.intermediate_size, model.stored.mlp_block, tp_size};
}
Inner ExpertOf(const model::ModelConfig& model, int32_t shards) {
  return {"an expert's", model.experts.intermediate_size, model.stored.expert_block, shards};
}
Inner SharedOf(const model::ModelConfig& model, int32_t tp_size) {
  return {"the shared expert's", model.experts.shared_intermediate_size, model.stored.shared_block,
          tp_size};
}

// Those that the model has.
std::vector<Inner> InnersOf(const model::ModelConfig& model, int32_t tp_size, int32_t ep_size) {
  std::vector<Inner> inners;
  const int64_t of_experts = model.LayersOfExperts();
  if (of_experts == 0 || of_experts < model.num_layers) inners.push_back(MlpOf(model, tp_size));
  if (of_experts > 0) inners.push_back(ExpertOf(model, tp_size / ep_size));
  if (of_experts > 0 && model.experts.shared_intermediate_size > 0) {
    inners.push_back(SharedOf(model, tp_size));
  }
  return inners;
}

// Why blocks of quantised weights are in the way of so many shards; empty where they are not.
std::string WhyBlocksForbid(const model::ModelConfig& model, int32_t tp_size, int32_t ep_size) {
  const int64_t attention = model.num_heads * model.head_dim;
  if (attention / tp_size % model.stored.attention_block != 0) {
    return absl::StrCat(attention / tp_size, " columns of a shard's heads cut a block of ",
                        model.stored.attention_block, " quantised weights");
  }
  for (const Inner& inner : InnersOf(model, tp_size, ep_size)) {
    if (inner.blocks() >= inner.shards) continue;
    return absl::StrCat(inner.what, " inner dimension of ", inner.size, " has ", inner.blocks(),
                        " blocks of ", inner.block, " quantised weights");
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

std::string PossibleShards(const model::ModelConfig& model, int32_t ep_size) {
  std::string possible;
  constexpr int64_t kMost = 64;
  for (int32_t tp_size = 1; tp_size <= std::min(model.num_heads, kMost); ++tp_size) {
    if (tp_size % ep_size != 0 || !CheckHeads(model, tp_size).ok() ||
        !WhyBlocksForbid(model, tp_size, ep_size).empty()) {
      continue;
    }
    absl::StrAppend(&possible, possible.empty() ? "" : ", ", tp_size);
  }
  return possible.empty() ? "none" : "tp=" + possible;
}

// What a shard has of an inner dimension.
struct InnerPart {
  Range range;
  // Its inner blocks; empty where the model is not quantised.
  std::vector<int64_t> bounds;
};

InnerPart PartOf(const Inner& inner, bool quantized, int32_t shard, int32_t inner_blocks) {
  InnerPart part;
  if (!quantized) {
    const int64_t each = inner.size / inner.shards;
    part.range = {shard * each, (shard + 1) * each};
    return part;
  }
  part.range = {BlocksBefore(inner.blocks(), inner.shards, shard) * inner.block,
                BlocksBefore(inner.blocks(), inner.shards, shard + 1) * inner.block};
  const int64_t first = int64_t{shard} * inner_blocks;
  const auto before = [&](int64_t i) {
    return BlocksBefore(inner.blocks(), inner.shards * inner_blocks, i) * inner.block;
  };
  for (int64_t i = 0; i <= inner_blocks; ++i) {
    part.bounds.push_back(before(first + i) - before(first));
  }
  return part;
}

int32_t InnerBlocks(int32_t shards) { return SumsAgreeAcrossLayouts(shards) ? 8 / shards : 1; }

int64_t LargestPart(const Inner& inner, bool quantized) {
  if (!quantized) return inner.size / inner.shards;
  return (inner.blocks() + inner.shards - 1) / inner.shards * inner.block;
}

absl::Status CheckExpertParallel(const model::ModelConfig& model, int32_t tp_size,
                                 int32_t ep_size) {
  if (ep_size == 1) return absl::OkStatus();
  if (ep_size < 1 || tp_size % ep_size != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ep=", ep_size, ": ", tp_size, " shards cannot be as many groups"));
  }
  if (model.LayersOfExperts() == 0) {
    return absl::InvalidArgumentError(absl::StrCat("ep=", ep_size, ": the model has no experts"));
  }
  if (model.experts.count % ep_size != 0) {
    return absl::InvalidArgumentError(absl::StrCat("ep=", ep_size, ": ", model.experts.count,
                                                   " experts cannot be split into as many parts"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTensorParallel(const model::ModelConfig& model, int32_t tp_size,
                                 int32_t ep_size) {
  SKEIN_RETURN_IF_ERROR(CheckHeads(model, tp_size));
  SKEIN_RETURN_IF_ERROR(CheckExpertParallel(model, tp_size, ep_size));
  if (model.stored.any()) {
    const std::string why = WhyBlocksForbid(model, tp_size, ep_size);
    if (why.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("tp=", tp_size, ": ", why, "; possible are ", PossibleShards(model, ep_size)));
  }
  for (const Inner& inner : InnersOf(model, tp_size, ep_size)) {
    if (inner.size % inner.shards == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tp=", tp_size, ": ", inner.what, " inner dimension of ", inner.size,
                     " cannot be split into ", inner.shards, " shards"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardSpec> MakeShard(const model::ModelConfig& model, int32_t tp_size, int32_t shard,
                                    int32_t ep_size) {
  SKEIN_RETURN_IF_ERROR(CheckTensorParallel(model, tp_size, ep_size));
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
  if (tp_size <= model.num_kv_heads) {
    spec.kv_heads = part(model.num_kv_heads);
  } else {
    const int64_t head = shard / (tp_size / model.num_kv_heads);
    spec.kv_heads = {head, head + 1};
  }
  spec.inner_blocks = InnerBlocks(tp_size);
  const bool quantized = model.stored.any();
  const auto split = [&](const Inner& inner, int32_t of_them, int32_t blocks, Range& range,
                         std::vector<int64_t>& bounds) {
    InnerPart inner_part = PartOf(inner, quantized, of_them, blocks);
    range = inner_part.range;
    bounds = std::move(inner_part.bounds);
  };
  split(MlpOf(model, tp_size), shard, spec.inner_blocks, spec.ffn, spec.mlp_bounds);
  const Inner attention = {"attention's", model.num_heads * model.head_dim,
                           model.stored.attention_block, tp_size};
  spec.attention_bounds = PartOf(attention, quantized, shard, spec.inner_blocks).bounds;
  if (model.LayersOfExperts() > 0) {
    const int32_t shards = tp_size / ep_size;
    const int64_t each = model.experts.count / ep_size;
    spec.experts = {shard / shards * each, (shard / shards + 1) * each};
    spec.expert_inner_blocks = InnerBlocks(shards);
    split(ExpertOf(model, shards), shard % shards, spec.expert_inner_blocks, spec.expert_ffn,
          spec.expert_bounds);
    split(SharedOf(model, tp_size), shard, spec.inner_blocks, spec.shared_ffn, spec.shared_bounds);
  }
  const int64_t blocks = int64_t{spec.inner_blocks} * tp_size;
  spec.vocab_stride = (model.vocab_size + blocks - 1) / blocks * spec.inner_blocks;
  spec.vocab.begin = std::min(shard * spec.vocab_stride, model.vocab_size);
  spec.vocab.end = std::min(spec.vocab.begin + spec.vocab_stride, model.vocab_size);
  return spec;
}

int64_t LargestFfn(const model::ModelConfig& model, int32_t tp_size) {
  return LargestPart(MlpOf(model, tp_size), model.stored.any());
}

int64_t LargestExperts(const model::ModelConfig& model, int32_t tp_size) {
  return model.experts.count * LargestPart(ExpertOf(model, tp_size), model.stored.any());
}

int64_t LargestShared(const model::ModelConfig& model, int32_t tp_size) {
  return LargestPart(SharedOf(model, tp_size), model.stored.any());
}

Range StageLayers(int64_t num_layers, int32_t pp_size, int32_t stage) {
  const int64_t each = num_layers / pp_size;
  const int64_t longer = num_layers % pp_size;  // stages with one more
  const int64_t begin = stage * each + std::min<int64_t>(stage, longer);
  return {begin, begin + each + (stage < longer ? 1 : 0)};
}

Range BalancedStageLayers(const model::ModelConfig& model, int32_t pp_size, int32_t stage) {
  if (pp_size == 1) return {0, model.num_layers};
  // Of layers with experts and without, the average.
  const int64_t of_experts = model.LayersOfExperts();
  const int64_t inner = ((model.num_layers - of_experts) * model.intermediate_size +
                         of_experts * (model.experts.chosen * model.experts.intermediate_size +
                                       model.experts.shared_intermediate_size)) /
                        model.num_layers;
  const int64_t layer =
      model.hidden_size * (2 * (model.num_heads + model.num_kv_heads) * model.head_dim + 3 * inner);
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

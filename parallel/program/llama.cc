#include "parallel/program/llama.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "parallel/plan/shard.h"
#include "parallel/program/program_builder.h"

namespace skein::plan {
namespace {

using kernels::BufferId;
using kernels::WeightId;

class LlamaBuilder {
 public:
  LlamaBuilder(const model::ModelConfig& config, const model::TensorSource* tensors,
               const RankProgramSpec& spec, const ShardSpec& shard)
      : config_(config), spec_(spec), shard_(shard), builder_(tensors, config, spec.activations) {}

  absl::StatusOr<RankProgram> Build() {
    program().hop_dtype = spec_.hop_dtype;
    program().deterministic = spec_.deterministic;
    program().exact = spec_.exact;
    AddBuffers();
    if (is_first()) {
      SKEIN_RETURN_IF_ERROR(AddEmbedding());
    } else {
      builder_.SetPort(&kernels::Program::input, residual_);
    }
    for (int64_t layer = spec_.layers.begin; layer < spec_.layers.end; ++layer) {
      builder_.SetLayer(layer);
      SKEIN_RETURN_IF_ERROR(AddAttention(layer));
      SKEIN_RETURN_IF_ERROR(AddMlp(layer));
    }
    builder_.SetLayer(-1);
    if (is_last()) {
      builder_.Add(kernels::AddOp{residual_, delta_, residual_});
      SKEIN_RETURN_IF_ERROR(AddOutput());
    } else {
      const BufferId output = builder_.AddTokenBuffer("output", config_.hidden_size);
      builder_.Add(kernels::AddOp{residual_, delta_, output});
      builder_.SetPort(&kernels::Program::output, output);
    }
    builder_.result().kv = {.layers = spec_.layers.size(),
                            .kv_heads = shard_.kv_heads.size(),
                            .head_dim = config_.head_dim,
                            .page_size = spec_.page_size,
                            .pages = spec_.pages,
                            .dtype = spec_.kv_dtype};
    builder_.result().slice_key =
        absl::StrCat("shard ", spec_.tp_rank, "/", spec_.tp_size, " of layers ", spec_.layers.begin,
                     "-", spec_.layers.end, "/", config_.num_layers);
    return std::move(builder_.result());
  }

 private:
  bool is_first() const { return spec_.layers.begin == 0; }
  bool is_last() const { return spec_.layers.end == config_.num_layers; }
  bool has_peers() const { return spec_.tp_size > 1; }
  kernels::Program& program() { return builder_.result().program; }
  float eps() const { return static_cast<float>(config_.rms_norm_eps); }

  void AddBuffers() {
    const int64_t heads = shard_.heads.size() + 2 * shard_.kv_heads.size();
    residual_ = builder_.AddTokenBuffer("residual", config_.hidden_size);
    normed_ = builder_.AddTokenBuffer("normed", config_.hidden_size);
    // What shards add is rounded behind the sum: before, it would depend on how many there are.
    delta_ = builder_.AddTokenBuffer("delta", config_.hidden_size,
                                     spec_.deterministic ? DType::kF32 : spec_.activations);
    qkv_ = builder_.AddTokenBuffer("qkv", heads * config_.head_dim);
    attention_ = builder_.AddTokenBuffer("attention", shard_.heads.size() * config_.head_dim);
    gate_up_ = builder_.AddTokenBuffer("gate_up", 2 * shard_.ffn.size());
    activation_ = builder_.AddTokenBuffer("activation", shard_.ffn.size());
    frequencies_ =
        builder_.AddConstant("rope inverse frequencies", config_.RopeInverseFrequencies());
  }

  MatrixSlice VocabularySlice(const std::string& tensor) const {
    return {tensor, config_.vocab_size, config_.hidden_size, shard_.vocab,
            Range{0, config_.hidden_size}};
  }

  absl::Status AddEmbedding() {
    SKEIN_ASSIGN_OR_RETURN(
        embedding_,
        builder_.AddMatrix("embedding", {VocabularySlice(kEmbedding)}, 1, shard_.vocab_stride));
    builder_.Add(kernels::EmbedOp{embedding_, shard_.vocab.begin, shard_.vocab.size(), residual_});
    if (has_peers()) builder_.Add(kernels::AllReduceOp{residual_});
    return absl::OkStatus();
  }

  // residual += the layer before's delta, if there is one on this rank; normed = RmsNorm(residual).
  absl::Status AddNorm(const std::string& gain_tensor) {
    SKEIN_ASSIGN_OR_RETURN(const WeightId gain,
                           builder_.AddVector(gain_tensor, config_.hidden_size));
    if (has_delta_) {
      builder_.Add(kernels::AddRmsNormOp{residual_, delta_, gain, eps(), normed_});
    } else {
      builder_.Add(kernels::RmsNormOp{residual_, gain, eps(), normed_});
    }
    return absl::OkStatus();
  }

  // delta = in * weight^T, summed over the shards that hold the other columns.
  absl::Status AddRowParallel(const std::string& tensor, BufferId in, int64_t total_cols,
                              Range cols, const std::vector<int64_t>& bounds) {
    SKEIN_ASSIGN_OR_RETURN(const WeightId weight,
                           builder_.AddMatrix(tensor,
                                              {{tensor, config_.hidden_size, total_cols,
                                                Range{0, config_.hidden_size}, cols}},
                                              shard_.inner_blocks, /*min_rows=*/0, bounds));
    builder_.Add(kernels::MatMulOp{in, weight, delta_});
    if (has_peers()) builder_.Add(kernels::AllReduceOp{delta_});
    has_delta_ = true;
    return absl::OkStatus();
  }

  Range Columns(Range heads) const {
    return {heads.begin * config_.head_dim, heads.end * config_.head_dim};
  }

  absl::Status AddAttention(int64_t layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    SKEIN_RETURN_IF_ERROR(AddNorm(prefix + "input_layernorm.weight"));
    const auto projection = [&](const char* name, int64_t heads, Range part) {
      return MatrixSlice{absl::StrCat(prefix, "self_attn.", name, "_proj.weight"),
                         heads * config_.head_dim, config_.hidden_size, Columns(part),
                         Range{0, config_.hidden_size}};
    };
    SKEIN_ASSIGN_OR_RETURN(
        const WeightId qkv,
        builder_.AddMatrix(prefix + "self_attn.qkv",
                           {projection("q", config_.num_heads, shard_.heads),
                            projection("k", config_.num_kv_heads, shard_.kv_heads),
                            projection("v", config_.num_kv_heads, shard_.kv_heads)}));
    const auto heads = static_cast<int32_t>(shard_.heads.size());
    const auto kv_heads = static_cast<int32_t>(shard_.kv_heads.size());
    const auto head_dim = static_cast<int32_t>(config_.head_dim);
    const auto local_layer = static_cast<int32_t>(layer - spec_.layers.begin);
    const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
    builder_.Add(kernels::MatMulOp{normed_, qkv, qkv_});
    builder_.Add(
        kernels::RopeAppendKvOp{qkv_, heads, kv_heads, head_dim, frequencies_, local_layer});
    builder_.Add(
        kernels::AttentionOp{qkv_, heads, kv_heads, head_dim, scale, local_layer, attention_});
    return AddRowParallel(prefix + "self_attn.o_proj.weight", attention_,
                          config_.num_heads * config_.head_dim, Columns(shard_.heads),
                          shard_.attention_bounds);
  }

  absl::Status AddMlp(int64_t layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    SKEIN_RETURN_IF_ERROR(AddNorm(prefix + "post_attention_layernorm.weight"));
    const auto projection = [&](const char* name) {
      return MatrixSlice{absl::StrCat(prefix, "mlp.", name, "_proj.weight"),
                         config_.intermediate_size, config_.hidden_size, shard_.ffn,
                         Range{0, config_.hidden_size}};
    };
    SKEIN_ASSIGN_OR_RETURN(
        const WeightId gate_up,
        builder_.AddMatrix(prefix + "mlp.gate_up", {projection("gate"), projection("up")}));
    builder_.Add(kernels::MatMulOp{normed_, gate_up, gate_up_});
    builder_.Add(kernels::SwiGluOp{gate_up_, activation_});
    return AddRowParallel(prefix + "mlp.down_proj.weight", activation_, config_.intermediate_size,
                          shard_.ffn, shard_.mlp_bounds);
  }

  absl::Status AddOutput() {
    const BufferId last = builder_.AddOutputBuffer("last", config_.hidden_size);
    const BufferId logits = builder_.AddLogits(shard_.vocab_stride);
    builder_.Add(kernels::GatherRowsOp{residual_, last});
    SKEIN_ASSIGN_OR_RETURN(const WeightId gain,
                           builder_.AddVector("model.norm.weight", config_.hidden_size));
    builder_.Add(kernels::RmsNormOp{last, gain, eps(), last});
    WeightId head = embedding_;  // tied, and on this rank already
    if (head < 0 || !config_.tie_word_embeddings) {
      const char* tensor = config_.tie_word_embeddings ? kEmbedding : "lm_head.weight";
      SKEIN_ASSIGN_OR_RETURN(
          head, builder_.AddMatrix("output", {VocabularySlice(tensor)}, 1, shard_.vocab_stride));
    }
    builder_.Add(kernels::MatMulOp{last, head, logits});
    builder_.SetPort(&kernels::Program::logits, logits);
    program().vocab_size = config_.vocab_size;
    program().vocab_part = {.first = spec_.tp_rank * shard_.vocab_stride,
                            .block = shard_.vocab_stride / shard_.inner_blocks,
                            .blocks = shard_.inner_blocks};
    program().vocab_shards = spec_.tp_size;
    return absl::OkStatus();
  }

  static constexpr const char* kEmbedding = "model.embed_tokens.weight";

  const model::ModelConfig& config_;
  const RankProgramSpec& spec_;
  const ShardSpec& shard_;
  ProgramBuilder builder_;

  BufferId residual_ = -1, normed_ = -1, delta_ = -1, qkv_ = -1, attention_ = -1, gate_up_ = -1,
           activation_ = -1;
  WeightId frequencies_ = -1;
  WeightId embedding_ = -1;
  bool has_delta_ = false;
};

}  // namespace

absl::StatusOr<RankProgram> BuildLlamaProgram(const model::ModelConfig& config,
                                              const model::TensorSource* tensors,
                                              const RankProgramSpec& spec) {
  SKEIN_ASSIGN_OR_RETURN(const ShardSpec shard, MakeShard(config, spec.tp_size, spec.tp_rank));
  return LlamaBuilder(config, tensors, spec, shard).Build();
}

}  // namespace skein::plan

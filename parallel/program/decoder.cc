#include "parallel/program/decoder.h"

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

class DecoderBuilder {
 public:
  DecoderBuilder(const model::ModelConfig& config, const model::TensorSource* tensors,
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
      SKEIN_RETURN_IF_ERROR(AddFfnNorm(layer));
      SKEIN_RETURN_IF_ERROR(config_.HasExperts(layer) ? AddExperts(layer) : AddMlp(layer));
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
                     "-", spec_.layers.end, "/", config_.num_layers,
                     spec_.ep_size == 1 ? "" : absl::StrCat(", experts in ", spec_.ep_size));
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
    delta_ = AddSummedBuffer("delta", config_.hidden_size);
    qkv_ = builder_.AddTokenBuffer("qkv", heads * config_.head_dim);
    attention_ = builder_.AddTokenBuffer("attention", shard_.heads.size() * config_.head_dim);
    int64_t of_experts = 0;
    for (int64_t layer = spec_.layers.begin; layer < spec_.layers.end; ++layer) {
      of_experts += config_.HasExperts(layer) ? 1 : 0;
    }
    if (of_experts < spec_.layers.size()) mlp_ = AddUnitBuffers("", shard_.ffn);
    if (of_experts > 0) AddExpertBuffers();
  }

  // What shards add is rounded behind the sum: before, it would depend on how many there are.
  BufferId AddSummedBuffer(const char* name, int64_t cols) {
    return builder_.AddTokenBuffer(name, cols,
                                   spec_.deterministic ? DType::kF32 : spec_.activations);
  }

  // Of a gated linear unit that all rows pass.
  struct Unit {
    BufferId gate_up = -1;
    BufferId activation = -1;
  };
  Unit AddUnitBuffers(const std::string& prefix, Range inner) {
    return {builder_.AddTokenBuffer(prefix + "gate_up", 2 * inner.size()),
            builder_.AddTokenBuffer(prefix + "activation", inner.size())};
  }

  void AddExpertBuffers() {
    const model::ExpertsConfig& experts = config_.experts;
    router_ = builder_.AddTokenBuffer("router", experts.count, DType::kF32);
    routes_ = builder_.AddTokenBuffer("routes", 2 * experts.chosen, DType::kF32);
    slots_ = AddSummedBuffer("experts", experts.chosen * config_.hidden_size);
    if (experts.shared_intermediate_size == 0) return;
    shared_ = AddUnitBuffers("shared_", shard_.shared_ffn);
    shared_gate_ = builder_.AddTokenBuffer("shared_gate", 1, DType::kF32);
    shared_delta_ = AddSummedBuffer("shared_delta", config_.hidden_size);
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
    AddScale(residual_, config_.embedding_scale);
    return absl::OkStatus();
  }

  void AddScale(BufferId buffer, double scale) {
    if (scale != 1.0) builder_.Add(kernels::ScaleOp{buffer, static_cast<float>(scale)});
  }

  absl::StatusOr<WeightId> AddGain(const std::string& tensor, int64_t size) {
    return builder_.AddVector({{tensor, size, Range{0, size}}},
                              static_cast<float>(config_.norm_offset));
  }

  // residual += the layer before's delta, if there is one on this rank; normed = RmsNorm(residual).
  absl::Status AddNorm(const std::string& gain_tensor) {
    SKEIN_ASSIGN_OR_RETURN(const WeightId gain, AddGain(gain_tensor, config_.hidden_size));
    if (has_delta_) {
      builder_.Add(kernels::AddRmsNormOp{residual_, delta_, gain, eps(), normed_});
    } else {
      builder_.Add(kernels::RmsNormOp{residual_, gain, eps(), normed_});
    }
    return absl::OkStatus();
  }

  // delta = in * weight^T, summed over the shards that hold the other columns, and what follows
  // before it is added: bias, norm (empty: none), scale.
  absl::Status AddRowParallel(const std::string& projection, BufferId in, int64_t total_cols,
                              Range cols, const std::vector<int64_t>& bounds, bool has_bias,
                              const std::string& post_norm) {
    const std::string tensor = projection + ".weight";
    SKEIN_ASSIGN_OR_RETURN(const WeightId weight,
                           builder_.AddMatrix(tensor,
                                              {{tensor, config_.hidden_size, total_cols,
                                                Range{0, config_.hidden_size}, cols}},
                                              shard_.inner_blocks, /*min_rows=*/0, bounds));
    builder_.Add(kernels::MatMulOp{in, weight, delta_});
    if (has_peers()) builder_.Add(kernels::AllReduceOp{delta_});
    if (has_bias) {
      SKEIN_RETURN_IF_ERROR(AddBias(
          delta_, {{projection + ".bias", config_.hidden_size, Range{0, config_.hidden_size}}}));
    }
    if (config_.post_norms) {
      SKEIN_ASSIGN_OR_RETURN(const WeightId gain, AddGain(post_norm, config_.hidden_size));
      builder_.Add(kernels::RmsNormOp{delta_, gain, eps(), delta_});
    }
    AddScale(delta_, config_.residual_scale);
    has_delta_ = true;
    return absl::OkStatus();
  }

  Range Columns(Range heads) const {
    return {heads.begin * config_.head_dim, heads.end * config_.head_dim};
  }

  absl::Status AddBias(BufferId buffer, const std::vector<VectorSlice>& slices) {
    SKEIN_ASSIGN_OR_RETURN(const WeightId bias, builder_.AddVector(slices));
    builder_.Add(kernels::AddBiasOp{buffer, bias});
    return absl::OkStatus();
  }

  // Rows of a projection that reads the normed residual: this shard's `part` of so many.
  struct Projection {
    const char* name;
    int64_t rows;
    Range part;
  };
  // out = normed * weight^T + bias of projections, which the model may have as one, `joined`.
  absl::Status AddColumnParallel(const std::string& prefix, const char* buffer_name,
                                 const char* joined, const std::vector<Projection>& projections,
                                 bool has_bias, BufferId out) {
    std::vector<MatrixSlice> slices;
    std::vector<VectorSlice> biases;
    int64_t all_rows = 0;
    for (const Projection& projection : projections) all_rows += projection.rows;
    int64_t first = 0;
    for (const Projection& p : projections) {
      const std::string tensor = absl::StrCat(prefix, config_.joined_projections ? joined : p.name);
      const int64_t rows = config_.joined_projections ? all_rows : p.rows;
      const Range part = {first + p.part.begin, first + p.part.end};
      slices.push_back(
          {tensor + ".weight", rows, config_.hidden_size, part, Range{0, config_.hidden_size}});
      biases.push_back({tensor + ".bias", rows, part});
      if (config_.joined_projections) first += p.rows;
    }
    SKEIN_ASSIGN_OR_RETURN(const WeightId weight,
                           builder_.AddMatrix(absl::StrCat(prefix, buffer_name), slices));
    builder_.Add(kernels::MatMulOp{normed_, weight, out});
    return has_bias ? AddBias(out, biases) : absl::OkStatus();
  }

  // Layers that are rotated alike share frequencies.
  WeightId FrequenciesOf(const model::RopeConfig* rope) {
    for (const auto& [known, id] : frequencies_) {
      if (known == rope) return id;
    }
    const auto half = static_cast<size_t>(config_.head_dim / 2);
    // An angle of 0 leaves a head as it is.
    const WeightId id = builder_.AddConstant(
        rope == nullptr ? "no rotation" : "rope inverse frequencies",
        rope == nullptr ? std::vector<float>(half)
                        : rope->InverseFrequencies(config_.head_dim, spec_.context_length));
    frequencies_.emplace_back(rope, id);
    return id;
  }

  const model::RopeConfig* RopeOf(int64_t layer) const {
    if (!config_.unrotated.empty() && config_.unrotated[static_cast<size_t>(layer)]) return nullptr;
    const bool of_window = config_.window_rope.has_value() && config_.WindowOf(layer) > 0;
    return of_window ? &*config_.window_rope : &config_.rope;
  }

  absl::Status AddAttention(int64_t layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    SKEIN_RETURN_IF_ERROR(AddNorm(prefix + "input_layernorm.weight"));
    const int64_t queries = config_.num_heads * config_.head_dim;
    const int64_t keys = config_.num_kv_heads * config_.head_dim;
    SKEIN_RETURN_IF_ERROR(AddColumnParallel(prefix + "self_attn.", "qkv", "qkv_proj",
                                            {{"q_proj", queries, Columns(shard_.heads)},
                                             {"k_proj", keys, Columns(shard_.kv_heads)},
                                             {"v_proj", keys, Columns(shard_.kv_heads)}},
                                            config_.qkv_bias, qkv_));
    const auto heads = static_cast<int32_t>(shard_.heads.size());
    const auto kv_heads = static_cast<int32_t>(shard_.kv_heads.size());
    const auto head_dim = static_cast<int32_t>(config_.head_dim);
    const auto local_layer = static_cast<int32_t>(layer - spec_.layers.begin);
    if (config_.qk_norm) {
      SKEIN_ASSIGN_OR_RETURN(const WeightId q_gain,
                             AddGain(prefix + "self_attn.q_norm.weight", config_.head_dim));
      SKEIN_ASSIGN_OR_RETURN(const WeightId k_gain,
                             AddGain(prefix + "self_attn.k_norm.weight", config_.head_dim));
      builder_.Add(kernels::QkNormOp{qkv_, heads, kv_heads, head_dim, q_gain, k_gain, eps()});
    }
    const model::RopeConfig* const rope = RopeOf(layer);
    builder_.Add(kernels::RopeAppendKvOp{
        .qkv = qkv_,
        .heads = heads,
        .kv_heads = kv_heads,
        .head_dim = head_dim,
        .inverse_frequencies = FrequenciesOf(rope),
        .layer = local_layer,
        .magnitude = rope == nullptr ? 1.0f : static_cast<float>(rope->magnitude)});
    const double scale =
        config_.attention_scale.value_or(1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
    builder_.Add(kernels::AttentionOp{.qkv = qkv_,
                                      .heads = heads,
                                      .kv_heads = kv_heads,
                                      .head_dim = head_dim,
                                      .scale = static_cast<float>(scale),
                                      .layer = local_layer,
                                      .out = attention_,
                                      .window = static_cast<int32_t>(config_.WindowOf(layer)),
                                      .softcap = static_cast<float>(config_.attention_softcap)});
    return AddRowParallel(prefix + "self_attn.o_proj", attention_, queries, Columns(shard_.heads),
                          shard_.attention_bounds, config_.output_bias,
                          prefix + "post_attention_layernorm.weight");
  }

  absl::Status AddFfnNorm(int64_t layer) {
    return AddNorm(absl::StrCat("model.layers.", layer,
                                config_.post_norms ? ".pre_feedforward_layernorm.weight"
                                                   : ".post_attention_layernorm.weight"));
  }

  kernels::GateActivation activation() const {
    return config_.activation == model::Activation::kSilu ? kernels::GateActivation::kSilu
                                                          : kernels::GateActivation::kGeluTanh;
  }

  absl::Status AddMlp(int64_t layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    SKEIN_RETURN_IF_ERROR(AddColumnParallel(prefix + "mlp.", "gate_up", "gate_up_proj",
                                            {{"gate_proj", config_.intermediate_size, shard_.ffn},
                                             {"up_proj", config_.intermediate_size, shard_.ffn}},
                                            config_.mlp_bias, mlp_.gate_up));
    builder_.Add(kernels::GluOp{mlp_.gate_up, mlp_.activation, activation()});
    return AddRowParallel(prefix + "mlp.down_proj", mlp_.activation, config_.intermediate_size,
                          shard_.ffn, shard_.mlp_bounds, config_.mlp_bias,
                          prefix + "post_feedforward_layernorm.weight");
  }

  // The two weights of a gated linear unit, of which this shard has `part` of `inner`.
  absl::StatusOr<WeightId> AddUnit(const std::string& name, int64_t inner, Range part,
                                   int32_t inner_blocks, const std::vector<int64_t>& bounds) {
    const model::ExpertsConfig& names = config_.experts;
    const int64_t hidden = config_.hidden_size;
    const auto rows_of = [&](const std::string& matrix) {
      return MatrixSlice{absl::StrCat(name, ".", matrix, ".weight"), inner, hidden, part,
                         Range{0, hidden}};
    };
    SKEIN_ASSIGN_OR_RETURN(
        const WeightId first,
        builder_.AddMatrix(name + ".gate_up", {rows_of(names.gate), rows_of(names.up)}));
    const std::string down = absl::StrCat(name, ".", names.down, ".weight");
    SKEIN_RETURN_IF_ERROR(builder_
                              .AddMatrix(down, {{down, hidden, inner, Range{0, hidden}, part}},
                                         inner_blocks,
                                         /*min_rows=*/0, bounds)
                              .status());
    return first;
  }

  // out = normed * tensor^T, which all shards have whole.
  absl::Status AddWhole(const std::string& tensor, int64_t rows, BufferId out) {
    const int64_t hidden = config_.hidden_size;
    SKEIN_ASSIGN_OR_RETURN(
        const WeightId weight,
        builder_.AddMatrix(tensor, {{tensor, rows, hidden, Range{0, rows}, Range{0, hidden}}}));
    builder_.Add(kernels::MatMulOp{normed_, weight, out});
    return absl::OkStatus();
  }

  // delta = the experts' sum. What shards have of each expert of a row is joined before it is
  // weighted and added, so that the order of sums is that of one shard.
  absl::Status AddExperts(int64_t layer) {
    const model::ExpertsConfig& experts = config_.experts;
    const std::string block = absl::StrCat("model.layers.", layer, ".", experts.block);
    SKEIN_RETURN_IF_ERROR(AddWhole(block + ".gate.weight", experts.count, router_));
    builder_.Add(kernels::RouteOp{router_, static_cast<int32_t>(experts.chosen), experts.normalized,
                                  routes_});
    WeightId first = -1;
    for (int64_t i = shard_.experts.begin; i < shard_.experts.end; ++i) {
      SKEIN_ASSIGN_OR_RETURN(
          const WeightId unit,
          AddUnit(absl::StrCat(block, ".experts.", i), experts.intermediate_size, shard_.expert_ffn,
                  shard_.expert_inner_blocks, shard_.expert_bounds));
      if (first < 0) first = unit;
    }
    builder_.Add(kernels::ExpertsOp{normed_, routes_, static_cast<int32_t>(shard_.experts.begin),
                                    static_cast<int32_t>(shard_.experts.size()), first, slots_,
                                    activation()});
    if (has_peers()) builder_.Add(kernels::AllReduceOp{slots_});
    builder_.Add(kernels::CombineExpertsOp{slots_, routes_, delta_});
    if (experts.shared_intermediate_size > 0) SKEIN_RETURN_IF_ERROR(AddSharedExpert(block));
    AddScale(delta_, config_.residual_scale);
    has_delta_ = true;
    return absl::OkStatus();
  }

  // delta += the gated output of the expert that all rows have.
  absl::Status AddSharedExpert(const std::string& block) {
    SKEIN_RETURN_IF_ERROR(AddWhole(block + ".shared_expert_gate.weight", 1, shared_gate_));
    SKEIN_ASSIGN_OR_RETURN(
        const WeightId unit,
        AddUnit(block + ".shared_expert", config_.experts.shared_intermediate_size,
                shard_.shared_ffn, shard_.inner_blocks, shard_.shared_bounds));
    builder_.Add(kernels::MatMulOp{normed_, unit, shared_.gate_up});
    builder_.Add(kernels::GluOp{shared_.gate_up, shared_.activation, activation()});
    builder_.Add(kernels::MatMulOp{shared_.activation, unit + 1, shared_delta_});
    if (has_peers()) builder_.Add(kernels::AllReduceOp{shared_delta_});
    builder_.Add(kernels::AddGatedOp{shared_gate_, shared_delta_, delta_});
    return absl::OkStatus();
  }

  absl::Status AddOutput() {
    const BufferId last = builder_.AddOutputBuffer("last", config_.hidden_size);
    const BufferId logits = builder_.AddLogits(shard_.vocab_stride);
    builder_.Add(kernels::GatherRowsOp{residual_, last});
    SKEIN_ASSIGN_OR_RETURN(const WeightId gain, AddGain("model.norm.weight", config_.hidden_size));
    builder_.Add(kernels::RmsNormOp{last, gain, eps(), last});
    program().pooled = {residual_, gain, eps()};
    WeightId head = embedding_;  // tied, and on this rank already
    if (head < 0 || !config_.tie_word_embeddings) {
      const char* tensor = config_.tie_word_embeddings ? kEmbedding : "lm_head.weight";
      SKEIN_ASSIGN_OR_RETURN(
          head, builder_.AddMatrix("output", {VocabularySlice(tensor)}, 1, shard_.vocab_stride));
    }
    builder_.Add(kernels::MatMulOp{last, head, logits});
    AddScale(logits, config_.logits_scale);
    if (config_.logits_softcap > 0) {
      builder_.Add(kernels::SoftCapOp{logits, static_cast<float>(config_.logits_softcap)});
    }
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

  BufferId residual_ = -1, normed_ = -1, delta_ = -1, qkv_ = -1, attention_ = -1;
  Unit mlp_;
  BufferId router_ = -1, routes_ = -1, slots_ = -1;
  Unit shared_;
  BufferId shared_gate_ = -1, shared_delta_ = -1;
  std::vector<std::pair<const model::RopeConfig*, WeightId>> frequencies_;
  WeightId embedding_ = -1;
  bool has_delta_ = false;
};

}  // namespace

absl::StatusOr<RankProgram> BuildDecoderProgram(const model::ModelConfig& config,
                                                const model::TensorSource* tensors,
                                                const RankProgramSpec& spec) {
  SKEIN_ASSIGN_OR_RETURN(const ShardSpec shard,
                         MakeShard(config, spec.tp_size, spec.tp_rank, spec.ep_size));
  return DecoderBuilder(config, tensors, spec, shard).Build();
}

}  // namespace skein::plan

#include "model/format/gguf_weights.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/range.h"
#include "base/status_macros.h"
#include "model/format/gguf_keys.h"

namespace skein::model {
namespace {

struct Name {
  std::string_view gguf;
  std::string_view hugging_face;
};

constexpr Name kNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};
constexpr Name kLayerNames[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_qkv.weight", "self_attn.qkv_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"ffn_gate.bias", "mlp.gate_proj.bias"},
    {"ffn_up.bias", "mlp.up_proj.bias"},
    {"ffn_down.bias", "mlp.down_proj.bias"},
};
// Of architectures with norms behind attention and MLP, too.
constexpr Name kPostNormNames[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
};
constexpr Name kExpertNames[] = {
    {"ffn_gate_inp.weight", "mlp.gate.weight"},
    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight"},
    {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight"},
};
constexpr Name kMixtralNames[] = {{"ffn_gate_inp.weight", "block_sparse_moe.gate.weight"}};
// Of all experts of a layer, as one tensor; behind an expert's own name.
constexpr Name kOfEachExpert[] = {
    {"ffn_gate_exps.weight", "gate_proj.weight"},
    {"ffn_up_exps.weight", "up_proj.weight"},
    {"ffn_down_exps.weight", "down_proj.weight"},
};
constexpr Name kOfEachMixtralExpert[] = {
    {"ffn_gate_exps.weight", "w1.weight"},
    {"ffn_up_exps.weight", "w3.weight"},
    {"ffn_down_exps.weight", "w2.weight"},
};
// ffn_up has the gates, too.
constexpr Name kJoinedNames[] = {{"ffn_up.weight", "mlp.gate_up_proj.weight"}};
constexpr std::string_view kLayers = "blk.";

std::string_view Find(absl::Span<const Name> names, std::string_view gguf) {
  for (const Name& name : names) {
    if (name.gguf == gguf) return name.hugging_face;
  }
  return {};
}

// "blk.3.attn_q.weight" as "3" and "attn_q.weight".
struct LayerName {
  std::string_view layer;
  std::string_view tensor;
};

std::optional<LayerName> SplitLayerName(std::string_view name) {
  if (name.substr(0, kLayers.size()) != kLayers) return std::nullopt;
  name.remove_prefix(kLayers.size());
  const size_t dot = name.find('.');
  if (dot == 0 || dot == name.npos || !std::all_of(name.begin(), name.begin() + dot, ::isdigit)) {
    return std::nullopt;
  }
  return LayerName{name.substr(0, dot), name.substr(dot + 1)};
}

// In what files of an architecture are unlike Llama's.
struct Dialect {
  std::string_view architecture;
  bool interleaved = false;  // a head's rows of queries and keys lie in pairs
  absl::Span<const Name> layer_names = {};
  std::string_view experts = "mlp.experts.";  // a layer's, before an expert's number
  absl::Span<const Name> of_each_expert = kOfEachExpert;
};
constexpr Dialect kDialects[] = {
    {"llama", true, kMixtralNames, "block_sparse_moe.experts.", kOfEachMixtralExpert},
    {"qwen2moe", false, kExpertNames},
    {"qwen3moe", false, kExpertNames},
    {"granite", true},
    {"smollm3", true},
    {"phi3", false, kJoinedNames},
    {"gemma2", false, kPostNormNames},
    {"gemma3", false, kPostNormNames},
};

Dialect DialectOf(std::string_view architecture) {
  for (const Dialect& dialect : kDialects) {
    if (dialect.architecture == architecture) return dialect;
  }
  return {};
}

// A tensor of a layer that has no counterpart keeps its name behind the layer's, so that checks
// find it in the network.
std::string HuggingFaceName(const Dialect& dialect, std::string_view gguf) {
  if (const std::string_view name = Find(kNames, gguf); !name.empty()) return std::string(name);
  const std::optional<LayerName> split = SplitLayerName(gguf);
  if (!split) return std::string(gguf);
  std::string_view name = Find(dialect.layer_names, split->tensor);
  if (name.empty()) name = Find(kLayerNames, split->tensor);
  return absl::StrCat("model.layers.", std::string(split->layer), ".",
                      std::string(name.empty() ? split->tensor : name));
}

class HuggingFaceWeights final : public TensorSource {
 public:
  struct Stored {
    const TensorInfo* tensor = nullptr;
    int64_t head_dim = 0;  // of interleaved rows; 0: they lie in order
    int64_t expert = -1;   // whose part it is of a tensor of all
    bool as_row = false;   // a vector that is a matrix of one row
  };
  struct Tensor {
    TensorInfo info;
    Stored stored;
  };

  // `tensors` are sorted by name.
  HuggingFaceWeights(std::unique_ptr<TensorSource> stored, std::vector<Tensor> tensors)
      : stored_(std::move(stored)) {
    for (Tensor& tensor : tensors) {
      tensors_.push_back(std::move(tensor.info));
      stored_tensors_.push_back(tensor.stored);
    }
  }

  std::string_view description() const override { return stored_->description(); }
  absl::Span<const TensorInfo> tensors() const override { return tensors_; }
  std::vector<FileInfo> files() const override { return stored_->files(); }

 protected:
  absl::Status ReadChecked(const TensorInfo& tensor, absl::Span<const Range> slice,
                           absl::Span<std::byte> out) const override {
    const auto& [stored, head_dim, expert, as_row] = stored_tensors_[&tensor - tensors_.data()];
    if (head_dim > 0) return ReadInterleaved(*stored, head_dim, slice, out);
    if (as_row) return stored_->Read(*stored, slice.subspan(1), out);
    if (expert < 0) return stored_->Read(*stored, slice, out);
    return stored_->Read(*stored, {{Range{expert, expert + 1}, slice[0], slice[1]}}, out);
  }

 private:
  // Row i of a head's first half lies at 2 i of it, row i of its second half at 2 i + 1; a bias has
  // rows of one element. Takes a head's rows of memory.
  absl::Status ReadInterleaved(const TensorInfo& stored, int64_t head_dim,
                               absl::Span<const Range> slice, absl::Span<std::byte> out) const {
    const Range rows = slice[0];
    std::vector<Range> of_head(slice.begin(), slice.end());
    const int64_t cols = slice.size() > 1 ? slice[1].size() : 1;
    const auto row_bytes = static_cast<size_t>(DTypeBytes(stored.dtype, cols));
    std::vector<std::byte> head(static_cast<size_t>(head_dim) * row_bytes);
    std::byte* to = out.data();
    for (int64_t begin = rows.begin / head_dim * head_dim; begin < rows.end; begin += head_dim) {
      of_head[0] = {begin, begin + head_dim};
      SKEIN_RETURN_IF_ERROR(stored_->Read(stored, of_head, absl::MakeSpan(head)));
      const int64_t last = std::min(rows.end, begin + head_dim);
      for (int64_t row = std::max(rows.begin, begin); row < last; ++row, to += row_bytes) {
        const int64_t i = row - begin;
        const int64_t at = i < head_dim / 2 ? 2 * i : 2 * (i - head_dim / 2) + 1;
        std::memcpy(to, head.data() + static_cast<size_t>(at) * row_bytes, row_bytes);
      }
    }
    return absl::OkStatus();
  }

  std::unique_ptr<TensorSource> stored_;
  std::vector<TensorInfo> tensors_;
  std::vector<Stored> stored_tensors_;  // of tensors_
};

// The rows of a head where a tensor's rows are interleaved; 0 where they are not.
absl::StatusOr<int64_t> InterleavedHead(const GgufMetadata& metadata, const Dialect& dialect,
                                        const TensorInfo& tensor) {
  const std::optional<LayerName> name = SplitLayerName(tensor.name);
  if (!dialect.interleaved || !name) return 0;
  const bool queries = name->tensor == "attn_q.weight" || name->tensor == "attn_q.bias";
  const bool keys = name->tensor == "attn_k.weight" || name->tensor == "attn_k.bias";
  if (!queries && !keys) return 0;
  const std::string prefix(dialect.architecture);
  const std::string all_heads = prefix + ".attention.head_count";
  const std::string kv_heads = prefix + ".attention.head_count_kv";
  SKEIN_ASSIGN_OR_RETURN(
      const int64_t heads,
      metadata.IntegerOfLayers(keys && metadata.Has(kv_heads) ? kv_heads : all_heads));
  if (tensor.shape.empty() || tensor.shape.size() > 2 || heads < 1 || heads > tensor.shape[0] ||
      tensor.shape[0] % heads != 0 || tensor.shape[0] / heads % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", tensor.name, "' has ", tensor.shape.empty() ? 0 : tensor.shape[0],
                     " rows, not an even number for each of ", heads, " heads"));
  }
  return tensor.shape[0] / heads;
}

// More than any model has.
constexpr int64_t kMaxExperts = 4096;

// Adds a matrix for each expert of a tensor of all of a layer's; false where it is none.
absl::StatusOr<bool> AddExperts(const Dialect& dialect, const TensorInfo& stored,
                                std::vector<HuggingFaceWeights::Tensor>& tensors) {
  const std::optional<LayerName> split = SplitLayerName(stored.name);
  if (!split || stored.shape.size() != 3) return false;
  const std::string_view name = Find(dialect.of_each_expert, split->tensor);
  if (name.empty()) return false;
  if (stored.shape[0] > kMaxExperts) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", stored.name, "' is of ",
                                                   stored.shape[0], " experts, of at most ",
                                                   kMaxExperts));
  }
  for (int64_t expert = 0; expert < stored.shape[0]; ++expert) {
    HuggingFaceWeights::Tensor& tensor = tensors.emplace_back();
    tensor.info = {absl::StrCat("model.layers.", std::string(split->layer), ".",
                                std::string(dialect.experts), expert, ".", std::string(name)),
                   stored.dtype,
                   {stored.shape[1], stored.shape[2]}};
    tensor.stored = {.tensor = &stored, .expert = expert};
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorSource>> AsHuggingFaceWeights(GgufModel model) {
  SKEIN_ASSIGN_OR_RETURN(const std::string_view architecture,
                         model.metadata.String(kGgufArchitecture));
  const Dialect dialect = DialectOf(architecture);
  std::vector<HuggingFaceWeights::Tensor> tensors;
  for (const TensorInfo& stored : model.tensors->tensors()) {
    if (stored.name == kGgufRopeDivisors || stored.name == kGgufShortDivisors ||
        stored.name == kGgufLongDivisors) {
      continue;
    }
    SKEIN_ASSIGN_OR_RETURN(const bool of_experts, AddExperts(dialect, stored, tensors));
    if (of_experts) continue;
    HuggingFaceWeights::Tensor& tensor = tensors.emplace_back();
    tensor.info = stored;
    tensor.info.name = HuggingFaceName(dialect, stored.name);
    tensor.stored.tensor = &stored;
    if (stored.shape.size() == 1 &&
        absl::EndsWith(tensor.info.name, ".shared_expert_gate.weight")) {
      tensor.stored.as_row = true;
      tensor.info.shape = {1, stored.shape[0]};
    }
    SKEIN_ASSIGN_OR_RETURN(tensor.stored.head_dim,
                           InterleavedHead(model.metadata, dialect, stored));
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.info.name < b.info.name; });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i - 1].info.name == tensors[i].info.name) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensors '", tensors[i - 1].stored.tensor->name, "' and '",
                       tensors[i].stored.tensor->name, "' have one meaning"));
    }
  }
  return std::make_unique<HuggingFaceWeights>(std::move(model.tensors), std::move(tensors));
}

}  // namespace skein::model

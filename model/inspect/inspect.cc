#include "model/inspect/inspect.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json/json.h"
#include "model/config/check_weights.h"
#include "model/config/model_config.h"
#include "model/format/gguf.h"
#include "model/format/gguf_keys.h"
#include "model/format/open.h"
#include "model/format/tensor_source.h"
#include "model/tokenizer/tokenizer.h"

namespace skein::model {
namespace {

constexpr int64_t kMaxConfigBytes = 16 << 20;

constexpr std::array kClasses = {"embedding", "attention", "mlp", "norms", "output", "other"};

// The index in kClasses, by Hugging Face's names.
size_t ClassOf(const std::string& name) {
  if (absl::StrContains(name, "embed_tokens")) return 0;
  if (absl::StrContains(name, "norm")) return 3;
  if (absl::StrContains(name, "attn")) return 1;
  if (absl::StrContains(name, "mlp") || absl::StrContains(name, "ffn")) return 2;
  if (absl::StartsWith(name, "lm_head")) return 4;
  return 5;
}

class Inspector {
 public:
  explicit Inspector(const std::string& model) : model_(model) {}

  Inspection Run() {
    ReadNames();
    ReadWeights();
    ReadConfig();
    ReadTokenizer();
    const absl::StatusOr<std::optional<std::string>> chat = LoadChatTemplate(model_);
    Refuse(chat.status());
    result_.has_chat_template = chat.ok() && chat->has_value();
    if (config_ && weights_) Refuse(CheckWeights(*config_, *weights_).status());
    return std::move(result_);
  }

 private:
  // One reason often stops several readers.
  void Refuse(const absl::Status& status) {
    if (status.ok()) return;
    std::string reason(status.message());
    if (std::find(result_.refusals.begin(), result_.refusals.end(), reason) ==
        result_.refusals.end()) {
      result_.refusals.push_back(std::move(reason));
    }
  }

  void ReadNames() {
    if (!IsGgufPath(model_)) {
      result_.format = "safetensors";
      const absl::StatusOr<std::string> text = ReadFile(model_ + "/config.json", kMaxConfigBytes);
      if (!text.ok()) return;  // ReadConfig tells
      const absl::StatusOr<nlohmann::json> config = ParseJson(*text);
      if (!config.ok() || !config->is_object()) return;
      const nlohmann::json names = config->value("architectures", nlohmann::json());
      if (names.is_array() && names.size() == 1 && names[0].is_string()) {
        result_.architecture = names[0];
      }
      return;
    }
    result_.format = "GGUF";
    const absl::StatusOr<GgufMetadata> metadata = ReadGgufMetadata(model_);
    if (!metadata.ok()) return;  // ReadWeights tells
    const auto text = [&metadata](std::string_view key) {
      const absl::StatusOr<std::string_view> value = metadata->String(key);
      return value.ok() ? std::string(*value) : std::string();
    };
    result_.architecture = text(kGgufArchitecture);
    result_.name = text("general.name");
    result_.tokenizer = text(kGgufTokenizer);
    if (const std::string pre = text(kGgufPreTokenizer); !pre.empty()) {
      absl::StrAppend(&result_.tokenizer, " (", pre, ")");
    }
  }

  void ReadWeights() {
    absl::StatusOr<std::unique_ptr<TensorSource>> weights = OpenTensorSource(model_);
    Refuse(weights.status());
    if (!weights.ok()) return;
    weights_ = *std::move(weights);
    for (const FileInfo& file : weights_->files()) {
      ++result_.files;
      result_.file_bytes += file.size_bytes;
    }
    std::array<TensorClass, kClasses.size()> classes;
    for (const TensorInfo& tensor : weights_->tensors()) {
      TensorClass& of = classes[ClassOf(tensor.name)];
      ++of.tensors;
      of.elements += tensor.elements();
      of.bytes += DTypeBytes(tensor.dtype, tensor.elements());
      of.elements_of[tensor.dtype] += tensor.elements();
      result_.parameters += tensor.elements();
    }
    for (size_t i = 0; i < classes.size(); ++i) {
      classes[i].name = kClasses[i];
      if (classes[i].tensors > 0) result_.classes.push_back(std::move(classes[i]));
    }
  }

  void ReadConfig() {
    absl::StatusOr<ModelConfig> config = LoadModelConfig(model_);
    Refuse(config.status());
    if (!config.ok()) return;
    config_ = *std::move(config);
    result_.layers = config_->num_layers;
    result_.hidden_size = config_->hidden_size;
    result_.heads = config_->num_heads;
    result_.kv_heads = config_->num_kv_heads;
    result_.context_length = config_->max_position_embeddings;
    result_.end_tokens = config_->eos_token_ids;
  }

  void ReadTokenizer() {
    const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(model_);
    Refuse(tokenizer.status());
    if (!tokenizer.ok()) return;
    result_.vocab_size = (*tokenizer)->vocab_size();
    if (!result_.tokenizer.empty()) return;
    std::error_code ignored;
    const bool has_json = std::filesystem::exists(model_ + "/tokenizer.json", ignored);
    result_.tokenizer = has_json ? "tokenizer.json" : "tokenizer.model";
  }

  const std::string model_;
  Inspection result_;
  std::unique_ptr<TensorSource> weights_;
  std::optional<ModelConfig> config_;
};

}  // namespace

double TensorClass::bits_per_weight() const {
  return elements == 0 ? 0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(elements);
}

Inspection Inspect(const std::string& model) { return Inspector(model).Run(); }

}  // namespace skein::model

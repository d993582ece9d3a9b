#include "tests/gguf/gguf_of_folder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "model/config/model_config.h"
#include "model/format/gguf_bytes.h"
#include "model/format/safetensors.h"

namespace skein::testing {
namespace {

using model::GgufType;
using model::LittleEndian;
using nlohmann::json;

std::string GgufName(const std::string& name) {
  return absl::StrReplaceAll(name, {{"model.embed_tokens", "token_embd"},
                                    {"model.norm", "output_norm"},
                                    {"lm_head", "output"},
                                    {"model.layers.", "blk."},
                                    {"input_layernorm", "attn_norm"},
                                    {"post_attention_layernorm", "ffn_norm"},
                                    {"self_attn.q_proj", "attn_q"},
                                    {"self_attn.k_proj", "attn_k"},
                                    {"self_attn.v_proj", "attn_v"},
                                    {"self_attn.o_proj", "attn_output"},
                                    {"mlp.gate_proj", "ffn_gate"},
                                    {"mlp.up_proj", "ffn_up"},
                                    {"mlp.down_proj", "ffn_down"}});
}

absl::StatusOr<std::string> ReadWhole(const model::TensorSource& tensors,
                                      const model::TensorInfo& tensor) {
  std::string bytes(static_cast<size_t>(DTypeBytes(tensor.dtype, tensor.elements())), '\0');
  std::vector<Range> whole;
  for (const int64_t size : tensor.shape) whole.push_back({0, size});
  SKEIN_RETURN_IF_ERROR(tensors.Read(
      tensor, whole, absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size())));
  return bytes;
}

// A head's rows a0 a1 ... b0 b1 ... become a0 b0 a1 b1 ...
std::string Interleave(const std::string& bytes, int64_t rows, int64_t heads) {
  const size_t row = bytes.size() / static_cast<size_t>(rows);
  const int64_t half = rows / heads / 2;
  std::string out;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < half; ++i) {
      for (int64_t part = 0; part < 2; ++part) {
        out += bytes.substr(static_cast<size_t>(head * 2 * half + part * half + i) * row, row);
      }
    }
  }
  return out;
}

std::string ToFloats(DType dtype, const std::string& bytes) {
  std::vector<float> floats(bytes.size() / static_cast<size_t>(BlockBytes(dtype)));
  ConvertToFloat(dtype, bytes.data(), static_cast<int64_t>(floats.size()), floats.data());
  return {reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)};
}

std::string ToQ8_0(DType dtype, const std::string& bytes) {
  const std::string floats = ToFloats(dtype, bytes);
  std::string blocks;
  for (size_t at = 0; at < floats.size(); at += 32 * sizeof(float)) {
    std::array<float, 32> values;
    std::memcpy(values.data(), floats.data() + at, sizeof(values));
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::abs(value));
    const float scale = largest / 127;
    blocks += LittleEndian(FloatToF16(scale));
    for (const float value : values) {
      blocks += static_cast<char>(scale == 0 ? 0 : std::lround(value / scale));
    }
  }
  return blocks;
}

// Llama 3's scaling, as the divisors that its file holds.
std::string RopeDivisors(const model::ModelConfig& config) {
  const model::RopeConfig& rope = config.rope;
  const auto context = static_cast<double>(rope.original_max_position_embeddings);
  std::string divisors;
  for (int64_t i = 0; i < config.head_dim / 2; ++i) {
    const double wavelength =
        2 * std::numbers::pi *
        std::pow(rope.theta, 2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim));
    double divisor = 1;
    if (wavelength > context / rope.low_freq_factor) {
      divisor = rope.factor;
    } else if (wavelength >= context / rope.high_freq_factor) {
      const double smooth = (context / wavelength - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
      divisor = 1 / ((1 - smooth) / rope.factor + smooth);
    }
    divisors += LittleEndian(static_cast<float>(divisor));
  }
  return divisors;
}

void AddTokenizer(const json& file, model::GgufBytes& gguf) {
  std::map<int32_t, std::string> tokens;
  for (const auto& [token, id] : file["model"]["vocab"].items()) tokens[id.get<int32_t>()] = token;
  std::map<int32_t, int32_t> types;
  for (const json& added : file["added_tokens"]) {
    tokens[added["id"]] = added["content"];
    types[added["id"]] = added["special"].get<bool>() ? 3 : 4;
  }
  std::vector<std::string> texts;
  std::vector<std::string> kinds;
  for (const auto& [id, text] : tokens) {
    texts.push_back(text);
    kinds.push_back(LittleEndian<int32_t>(types.contains(id) ? types[id] : 1));
  }
  std::vector<std::string> merges;
  for (const json& merge : file["model"]["merges"]) {
    merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  gguf.AddString("tokenizer.ggml.model", "gpt2")
      .AddString("tokenizer.ggml.pre", "gpt-2")
      .Add("tokenizer.ggml.tokens", GgufType::kArray, model::GgufStrings(texts))
      .Add("tokenizer.ggml.token_type", GgufType::kArray, model::GgufArray(GgufType::kInt32, kinds))
      .Add("tokenizer.ggml.merges", GgufType::kArray, model::GgufStrings(merges))
      .Add("tokenizer.ggml.add_bos_token", GgufType::kBool,
           LittleEndian<uint8_t>(!file["post_processor"].is_null()));
}

absl::Status AddTensors(const model::ModelConfig& config, const model::TensorSource& tensors,
                        bool q8_0, model::GgufBytes& gguf) {
  for (const model::TensorInfo& tensor : tensors.tensors()) {
    SKEIN_ASSIGN_OR_RETURN(std::string bytes, ReadWhole(tensors, tensor));
    DType dtype = tensor.dtype;
    if (absl::StrContains(tensor.name, "q_proj")) {
      bytes = Interleave(bytes, tensor.shape[0], config.num_heads);
    } else if (absl::StrContains(tensor.name, "k_proj")) {
      bytes = Interleave(bytes, tensor.shape[0], config.num_kv_heads);
    } else if (tensor.shape.size() == 1) {
      bytes = ToFloats(dtype, bytes);
      dtype = DType::kF32;
    }
    if (q8_0 && tensor.shape.size() == 2) {
      bytes = ToQ8_0(dtype, bytes);
      dtype = DType::kQ8_0;
    }
    const std::vector<uint64_t> sizes(tensor.shape.rbegin(), tensor.shape.rend());
    gguf.AddTensor(GgufName(tensor.name), sizes, model::GgmlType(dtype), bytes);
  }
  if (config.rope.scaling == model::RopeConfig::Scaling::kLlama3) {
    gguf.AddTensor("rope_freqs.weight", {static_cast<uint64_t>(config.head_dim / 2)},
                   model::GgmlType(DType::kF32), RopeDivisors(config));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteGgufOfFolder(const std::string& folder, const std::string& path, bool q8_0) {
  SKEIN_ASSIGN_OR_RETURN(const model::ModelConfig config, model::LoadModelConfig(folder));
  SKEIN_ASSIGN_OR_RETURN(const auto tensors, model::OpenSafetensors(folder));
  const auto number = [](int64_t value) { return static_cast<uint32_t>(value); };
  model::GgufBytes gguf;
  gguf.AddString("general.architecture", "llama")
      .AddUint32("llama.vocab_size", number(config.vocab_size))
      .AddUint32("llama.context_length", number(config.max_position_embeddings))
      .AddUint32("llama.embedding_length", number(config.hidden_size))
      .AddUint32("llama.feed_forward_length", number(config.intermediate_size))
      .AddUint32("llama.block_count", number(config.num_layers))
      .AddUint32("llama.attention.head_count", number(config.num_heads))
      .AddUint32("llama.attention.head_count_kv", number(config.num_kv_heads))
      .AddUint32("llama.attention.key_length", number(config.head_dim))
      .AddUint32("llama.attention.value_length", number(config.head_dim))
      .AddUint32("llama.rope.dimension_count", number(config.head_dim))
      .AddFloat32("llama.rope.freq_base", static_cast<float>(config.rope.theta))
      .AddFloat32("llama.attention.layer_norm_rms_epsilon",
                  static_cast<float>(config.rms_norm_eps));
  if (config.bos_token_id) {
    gguf.AddUint32("tokenizer.ggml.bos_token_id", number(*config.bos_token_id));
  }
  if (!config.eos_token_ids.empty()) {
    gguf.AddUint32("tokenizer.ggml.eos_token_id", number(config.eos_token_ids[0]));
  }
  if (std::ifstream tokenizer(folder + "/tokenizer.json"); tokenizer) {
    AddTokenizer(json::parse(tokenizer), gguf);
  }
  SKEIN_RETURN_IF_ERROR(AddTensors(config, *tensors, q8_0, gguf));
  std::ofstream file(path, std::ios::binary);
  file << gguf.Build();
  file.close();
  if (!file.good()) return absl::DataLossError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

}  // namespace skein::testing

// The architectures that Skein runs. Each family is one file beside this one, which reads its
// config.json into a ModelConfig; docs/adding-a-model.md shows how to add one.
#pragma once

#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "model/config/field_reader.h"
#include "model/config/model_config.h"
#include "model/format/gguf.h"
#include "nlohmann/json.hpp"

namespace skein::model {

struct Architecture {
  std::string_view name;        // as config.json has it in `architectures`,
  std::string_view model_type;  // in `model_type`,
  std::string_view gguf;        // and GGUF files in general.architecture
  // Reads all fields; `architecture` is set already.
  void (*read)(FieldReader& reader, ModelConfig& config);
  // Adds to config.json's fields, as they follow from a GGUF file's keys, what this family's files
  // say by other means. May be null.
  void (*adapt_gguf)(const GgufModel& file, nlohmann::json& config) = nullptr;
  // Keys of GGUF files that some families have and this one takes; the others are refused.
  absl::Span<const std::string_view> gguf_keys = {};
  // What GGUF files of this name are that have experts; null: the same.
  const Architecture* with_experts = nullptr;
};

// Messages list them in this order.
absl::Span<const Architecture> Architectures();

// "LlamaForCausalLM, MistralForCausalLM ..."
std::string ArchitectureNames();

// ---- One file each ----
extern const Architecture kLlama;
extern const Architecture kMistral;
extern const Architecture kMixtral;
extern const Architecture kQwen2;
extern const Architecture kQwen3;
extern const Architecture kQwen2Moe;
extern const Architecture kQwen3Moe;
extern const Architecture kPhi3;
extern const Architecture kGemma2;
extern const Architecture kGemma3;
extern const Architecture kGranite;
extern const Architecture kSmolLm3;

}  // namespace skein::model

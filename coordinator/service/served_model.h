// The model that the coordinator serves, as it knows it: everything but the weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/template/chat_template.h"
#include "model/tokenizer/tokenizer.h"

namespace skein::coordinator {

// Immutable once made; any thread may read it.
struct ServedModel {
  std::string name;                  // what clients call it
  std::vector<std::string> aliases;  // other names
  std::string path;                  // as it was given
  std::string identity;
  model::ModelConfig config;
  model::GenerationDefaults defaults;
  std::unique_ptr<const model::Tokenizer> tokenizer;
  // FailedPrecondition: the model has none, or one that cannot be used; it is served without chats.
  absl::StatusOr<model::ChatTemplate> chat_template =
      absl::FailedPreconditionError("the model has no chat template");
  int64_t context_length = 0;          // tokens of prompt and answer together
  int64_t longest_token_bytes = 0;     // of any token
  std::vector<int32_t> eos_token_ids;  // sorted, of config and generation_config
  std::vector<std::vector<int32_t>> default_dry_breakers;
};

// What a model is called that has no other name: the last component of its path.
std::string NameOfPath(const std::string& path);

// Whether clients may call it so.
bool HasName(const ServedModel& model, std::string_view name);

// Fills the fields that follow from path, config, defaults and tokenizer; a name that
// is not set is the path's last component. InvalidArgument when
// `context_length` (0: the model's own) is more than the model has, when the model's own sampling
// defaults are out of range, or when its files name a token that its vocab_size has no place for.
absl::Status CompleteServedModel(ServedModel& model, int64_t context_length);

}  // namespace skein::coordinator

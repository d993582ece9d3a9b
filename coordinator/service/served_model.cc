#include "coordinator/service/served_model.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "coordinator/service/dry_breakers.h"
#include "coordinator/service/sampling_params.h"
#include "model/format/gguf.h"

namespace skein::coordinator {
namespace {

// A prompt may hold any token of the tokenizer: the embeddings must have a row for it.
absl::Status CheckTokenIds(const ServedModel& model) {
  const int64_t limit = model.config.vocab_size;
  const auto check = [&](int32_t id, const char* file, const std::string& what) {
    if (id < limit) return absl::OkStatus();
    // A GGUF file is all of them.
    const std::string where = model::IsGgufPath(model.path) || file == nullptr
                                  ? model.path
                                  : absl::StrCat(model.path, "/", file);
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": ", what, " is ", id, ", but the model has embeddings of ", limit, " tokens"));
  };
  if (model.config.bos_token_id.has_value()) {
    SKEIN_RETURN_IF_ERROR(check(*model.config.bos_token_id, "config.json", "bos_token_id"));
  }
  for (const int32_t id : model.config.eos_token_ids) {
    SKEIN_RETURN_IF_ERROR(check(id, "config.json", "eos_token_id"));
  }
  for (const int32_t id : model.defaults.bos_token_ids) {
    SKEIN_RETURN_IF_ERROR(check(id, "generation_config.json", "bos_token_id"));
  }
  for (const int32_t id : model.defaults.eos_token_ids) {
    SKEIN_RETURN_IF_ERROR(check(id, "generation_config.json", "eos_token_id"));
  }
  for (auto id = static_cast<int32_t>(limit); id < model.tokenizer->vocab_size(); ++id) {
    const std::string bytes = model.tokenizer->TokenBytes(id, /*skip_special=*/false);
    if (bytes.empty()) continue;  // a hole
    SKEIN_RETURN_IF_ERROR(check(
        id, nullptr,
        absl::StrCat("the id of its tokenizer's token \"", absl::Utf8SafeCHexEscape(bytes), "\"")));
  }
  return absl::OkStatus();
}

}  // namespace

std::string NameOfPath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path full = std::filesystem::weakly_canonical(path, error);
  const std::string name = (error ? std::filesystem::path(path) : full).filename().string();
  return Printable(name.empty() ? path : name, kMaxNameBytes);
}

bool HasName(const ServedModel& model, std::string_view name) {
  return model.name == name ||
         std::find(model.aliases.begin(), model.aliases.end(), name) != model.aliases.end();
}

absl::Status CompleteServedModel(ServedModel& model, int64_t context_length) {
  if (model.name.empty()) model.name = NameOfPath(model.path);

  const int64_t longest = model.config.max_position_embeddings;
  if (context_length < 0 || context_length == 1 || context_length > longest) {
    return absl::InvalidArgumentError(absl::StrCat("--context-length: ", context_length,
                                                   " is not in [2, ", longest, "], and ",
                                                   model.name, " has ", longest));
  }
  model.context_length = context_length == 0 ? longest : context_length;

  SKEIN_RETURN_IF_ERROR(CheckTokenIds(model));
  for (int32_t id = 0; id < model.tokenizer->vocab_size(); ++id) {
    const auto bytes = model.tokenizer->TokenBytes(id, /*skip_special=*/false).size();
    model.longest_token_bytes = std::max(model.longest_token_bytes, static_cast<int64_t>(bytes));
  }

  std::vector<int32_t>& eos = model.eos_token_ids;
  eos = model.config.eos_token_ids;
  eos.insert(eos.end(), model.defaults.eos_token_ids.begin(), model.defaults.eos_token_ids.end());
  std::sort(eos.begin(), eos.end());
  eos.erase(std::unique(eos.begin(), eos.end()), eos.end());
  SKEIN_ASSIGN_OR_RETURN(
      model.default_dry_breakers,
      ResolveDryBreakers({"\n", ":", "\"", "*"}, *model.tokenizer, model.config.vocab_size));

  return Annotate(ResolveSampling({}, model.defaults).status(),
                  absl::StrCat(model.path, "/generation_config.json"));
}

}  // namespace skein::coordinator

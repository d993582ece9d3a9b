#include "coordinator/service/served_model.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "coordinator/service/dry_breakers.h"
#include "coordinator/service/sampling_params.h"

namespace skein::coordinator {
namespace {

std::string BaseName(const std::string& path) {
  std::error_code error;
  const std::filesystem::path full = std::filesystem::weakly_canonical(path, error);
  const std::string name = (error ? std::filesystem::path(path) : full).filename().string();
  return name.empty() ? path : name;
}

}  // namespace

absl::Status CompleteServedModel(ServedModel& model, int64_t context_length) {
  model.name = Printable(BaseName(model.path), kMaxNameBytes);

  const int64_t longest = model.config.max_position_embeddings;
  if (context_length < 0 || context_length == 1 || context_length > longest) {
    return absl::InvalidArgumentError(absl::StrCat("--context-length: ", context_length,
                                                   " is not in [2, ", longest, "], and ",
                                                   model.name, " has ", longest));
  }
  model.context_length = context_length == 0 ? longest : context_length;

  for (int32_t id = 0; id < model.tokenizer->vocab_size(); ++id) {
    const auto bytes = model.tokenizer->TokenBytes(id, /*skip_special=*/false).size();
    model.longest_token_bytes = std::max(model.longest_token_bytes, static_cast<int64_t>(bytes));
  }

  std::vector<int32_t>& eos = model.eos_token_ids;
  eos = model.config.eos_token_ids;
  eos.insert(eos.end(), model.defaults.eos_token_ids.begin(), model.defaults.eos_token_ids.end());
  std::sort(eos.begin(), eos.end());
  eos.erase(std::unique(eos.begin(), eos.end()), eos.end());
  // Where logits end, so does what can be drawn.
  std::erase_if(eos, [&](int32_t id) { return id < 0 || id >= model.config.vocab_size; });

  SKEIN_ASSIGN_OR_RETURN(
      model.default_dry_breakers,
      ResolveDryBreakers({"\n", ":", "\"", "*"}, *model.tokenizer, model.config.vocab_size));

  return Annotate(ResolveSampling({}, model.defaults).status(),
                  absl::StrCat(model.path, "/generation_config.json"));
}

}  // namespace skein::coordinator

#include "coordinator/service/load_served_model.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/config/check_weights.h"
#include "model/format/identity.h"
#include "model/format/open.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {

namespace {

constexpr int64_t kMaxTemplateBytes = 1 << 20;  // that ChatTemplate takes

absl::StatusOr<ServedModel> ReadFolder(const std::string& path) {
  if (absl::StartsWith(path, "synthetic:")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", path, "' has no tokenizer; give a model's folder or GGUF file, or measure it ",
        "with `skein bench decode --model=", path, "`"));
  }
  ServedModel model;
  model.path = path;
  SKEIN_ASSIGN_OR_RETURN(model.config, model::LoadModelConfig(path));
  SKEIN_ASSIGN_OR_RETURN(model.defaults, model::LoadGenerationDefaults(path));
  SKEIN_ASSIGN_OR_RETURN(model.tokenizer, model::LoadTokenizer(path));
  SKEIN_ASSIGN_OR_RETURN(const auto weights, model::OpenTensorSource(path));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> warnings,
                         model::CheckWeights(model.config, *weights));
  for (const std::string& warning : warnings) spdlog::warn("{}", warning);
  SKEIN_ASSIGN_OR_RETURN(model.identity, model::ComputeModelIdentity(path, *weights));
  return model;
}

absl::StatusOr<model::ChatTemplate> ReadTemplateFile(const std::string& file) {
  SKEIN_ASSIGN_OR_RETURN(const std::string source, ReadFile(file, kMaxTemplateBytes));
  return model::ChatTemplate::Parse(source);
}

// Text alone can be completed without one.
absl::StatusOr<model::ChatTemplate> ReadOwnTemplate(const std::string& path) {
  absl::StatusOr<std::optional<std::string>> source = model::LoadChatTemplate(path);
  absl::Status why = source.status();
  if (source.ok() && !source->has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " has no chat template; --chat-template of the coordinator takes one from a file"));
  }
  if (source.ok()) {
    absl::StatusOr<model::ChatTemplate> parsed = model::ChatTemplate::Parse(**source);
    if (parsed.ok()) return parsed;
    why = parsed.status();
  }
  spdlog::warn("no chats: the chat template of {} cannot be used: {}", path,
               std::string(why.message()));
  return absl::FailedPreconditionError(
      absl::StrCat("the chat template of ", path, " cannot be used: ", why.message()));
}

}  // namespace

absl::StatusOr<ServedModel> LoadServedModel(const std::string& path, int64_t context_length,
                                            const std::string& chat_template,
                                            const std::vector<std::string>& names) {
  absl::StatusOr<ServedModel> model = ReadFolder(path);
  if (!model.ok()) return Annotate(model.status(), "--model");
  if (chat_template.empty()) {
    model->chat_template = ReadOwnTemplate(path);
  } else {
    model->chat_template = ReadTemplateFile(chat_template);
    if (!model->chat_template.ok()) {
      return Annotate(model->chat_template.status(), "--chat-template");
    }
  }
  if (!names.empty()) {
    model->name = names.front();
    model->aliases.assign(names.begin() + 1, names.end());
  }
  SKEIN_RETURN_IF_ERROR(CompleteServedModel(*model, context_length));
  return model;
}

}  // namespace skein::coordinator

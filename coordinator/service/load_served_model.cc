#include "coordinator/service/load_served_model.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/config/check_weights.h"
#include "model/format/identity.h"
#include "model/format/open.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {

namespace {

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

}  // namespace

absl::StatusOr<ServedModel> LoadServedModel(const std::string& path, int64_t context_length) {
  absl::StatusOr<ServedModel> model = ReadFolder(path);
  if (!model.ok()) return Annotate(model.status(), "--model");
  SKEIN_RETURN_IF_ERROR(CompleteServedModel(*model, context_length));
  return model;
}

}  // namespace skein::coordinator

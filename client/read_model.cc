#include "client/read_model.h"

#include "base/status_macros.h"
#include "model/config/check_weights.h"
#include "model/config/model_config.h"
#include "model/format/gguf.h"
#include "model/format/open.h"
#include "model/synthetic/synthetic.h"

namespace skein::client {

absl::StatusOr<plan::ModelFacts> ReadModel(const std::string& model) {
  plan::ModelFacts facts = {.name = model, .path = model};
  if (model::IsSyntheticSpec(model)) {
    SKEIN_ASSIGN_OR_RETURN(const model::SyntheticModel synthetic, model::ParseSyntheticSpec(model));
    facts.config = synthetic.config;
  } else {
    SKEIN_ASSIGN_OR_RETURN(facts.config, model::LoadModelConfig(model));
    // Plans are for what coordinators take. A folder may be planned for before its weights are
    // there.
    if (model::IsGgufPath(model)) {
      SKEIN_ASSIGN_OR_RETURN(const auto weights, model::OpenTensorSource(model));
      SKEIN_RETURN_IF_ERROR(model::CheckWeights(facts.config, *weights).status());
    }
  }
  return facts;
}

}  // namespace skein::client

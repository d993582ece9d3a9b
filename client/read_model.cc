#include "client/read_model.h"

#include "base/status_macros.h"
#include "model/config/model_config.h"
#include "model/synthetic/synthetic.h"

namespace skein::client {

absl::StatusOr<plan::ModelFacts> ReadModel(const std::string& model) {
  plan::ModelFacts facts = {.name = model, .path = model};
  if (model::IsSyntheticSpec(model)) {
    SKEIN_ASSIGN_OR_RETURN(const model::SyntheticModel synthetic, model::ParseSyntheticSpec(model));
    facts.config = synthetic.config;
  } else {
    SKEIN_ASSIGN_OR_RETURN(facts.config, model::LoadModelConfig(model));
  }
  return facts;
}

}  // namespace skein::client

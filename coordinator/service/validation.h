// Checks requests. A request that passes can be run as it stands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/service/request.h"
#include "coordinator/service/served_model.h"
#include "serving/request.h"

namespace skein::coordinator {

struct ValidRequest {
  serving::Request request;  // without id
  std::vector<std::string> stops;
  bool normalized = false;  // the embedding, where one is asked for
};

// Checks and tokenizes for the model, whatever the request calls it. InvalidArgument names the
// field and its range. `random_seed` is taken when the request has none. Linear in the prompt, of
// which no more is tokenized than can fit into the context.
absl::StatusOr<ValidRequest> Validate(const GenerateRequest& request, const ServedModel& model,
                                      uint64_t random_seed);

}  // namespace skein::coordinator

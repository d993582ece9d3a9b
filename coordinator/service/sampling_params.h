// How an answer's tokens are chosen: the request over the model over the API.
#pragma once

#include "absl/status/statusor.h"
#include "coordinator/cluster/messages.h"
#include "coordinator/service/request.h"
#include "model/config/model_config.h"

namespace skein::coordinator {

// The request's sampling fields over the model's defaults over the API's. InvalidArgument names
// the field, its value and its range.
absl::StatusOr<SamplingParams> ResolveSampling(const SamplingRequest& sampling,
                                               const model::GenerationDefaults& defaults);

}  // namespace skein::coordinator

// How an answer's tokens are chosen: the request over the model over the API.
#pragma once

#include "absl/status/statusor.h"
#include "coordinator/cluster/messages.h"
#include "coordinator/service/request.h"
#include "model/config/model_config.h"

namespace skein::coordinator {

// The request's sampling fields over the model's defaults over the API's; but for what only the
// vocabulary, the tokenizer or the answer's length can tell, which Validate adds: logit_bias's ids
// are unchecked, min_tokens, stop_ids and dry_breakers unset. InvalidArgument names the field, its
// value and its range.
absl::StatusOr<SamplingParams> ResolveSampling(const SamplingRequest& sampling,
                                               const model::GenerationDefaults& defaults);

}  // namespace skein::coordinator

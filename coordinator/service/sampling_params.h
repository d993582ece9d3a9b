// How an answer's tokens are chosen: the request over the model over the API.
#pragma once

#include "absl/status/statusor.h"
#include "coordinator/service/request.h"
#include "model/config/model_config.h"
#include "serving/sampling_params.h"

namespace skein::coordinator {

// What the model's files say, by names of serving/sampling_fields.h. A model that asks for greedy
// decoding gets it, unless the request names a temperature.
serving::SamplingValues ModelDefaults(const model::GenerationDefaults& defaults);

// The request's sampling fields over the model's defaults over the API's; but for what only the
// vocabulary, the tokenizer or the answer's length can tell, which Validate adds: logit_bias's ids
// and min_tokens are unchecked against them, stop_ids and dry_breakers unset. InvalidArgument names
// the field, its value and its range.
absl::StatusOr<serving::SamplingParams> ResolveSampling(const SamplingRequest& sampling,
                                                        const model::GenerationDefaults& defaults);

}  // namespace skein::coordinator

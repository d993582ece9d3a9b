// Checks that a file of weights belongs to the model that config.json describes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/format/tensor_source.h"

namespace skein::model {

// NotFound names a tensor of the network that the file lacks.
// InvalidArgument, with the tensor's name, where answers would be wrong without a word: a tensor of
// the network that `config` has no place for (a bias, a norm, a further layer), or tied embeddings
// beside an output matrix of their own. Returns lines for the log, on tensors that are not the
// network's and that nobody reads. Reads headers only, except for an output matrix that should
// equal the embeddings: transformers leaves it out of its files, so hardly anyone pays for it.
absl::StatusOr<std::vector<std::string>> CheckWeights(const ModelConfig& config,
                                                      const TensorSource& weights);

}  // namespace skein::model

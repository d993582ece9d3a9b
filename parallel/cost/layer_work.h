// What a layer of a model, and its output, have a rank read, multiply and pass: counted from the
// model's shape, on the average of its layers. Pure; any thread.
#pragma once

#include <cstdint>

#include "model/config/model_config.h"

namespace skein::cost {

// Of `context` tokens, to how many a row attends in a layer.
double SeenTokens(const model::ModelConfig& model, int64_t context);

// How many of the layers have experts, as a share.
double ShareOfExperts(const model::ModelConfig& model);
// Of how many experts of a layer so many rows are, if they choose evenly.
double TouchedExperts(const model::ModelConfig& model, int64_t rows);

// Values of the matrices of a layer that one rank of tp_size has, where so many of its experts
// count; each shard has the router whole.
double LayerValues(const model::ModelConfig& model, int32_t tp_size, double experts);
// How many values a row passes from product to product in a layer of one rank of tp_size.
double PassedValues(const model::ModelConfig& model, int32_t tp_size);

// A layer's, and the output's, as one rank of tp_size reads them.
int64_t LayerWeightBytes(const model::ModelConfig& model, int32_t tp_size);
int64_t OutputWeightBytes(const model::ModelConfig& model, int32_t tp_size);

}  // namespace skein::cost

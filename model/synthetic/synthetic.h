// Models with random weights that are made in memory: the shapes of real ones for benchmarks
// ("synthetic:llama3-1b"), small ones for tests.
//
// A weight is a pure function of its tensor's name and its index in the tensor, in integers, and so
// has the same bits on every machine and in every slice:
//
//   seed = FNV-1a, 64 bits, of the tensor's name
//   word = SplitMix64's output number i / 8 (from 0) of that seed
//   byte = (word >> 8 * (i % 8)) & 255
//   weight i = (2 * byte - 255) / 8192, of a vector (a norm's): 1 + (byte % 16) / 128
//
// All of these are exact in F32, F16 and BF16. Matrix weights are uniform within ±0.031, with mean
// 0 and standard deviation 0.018 (models are initialised with 0.02), so that activations stay
// finite at any depth: each layer normalises what it reads.
//
// Quantised matrices are for speeds alone: their blocks hold the same bytes, by their place in the
// tensor, but for the scales, which are the same in all blocks of a type and keep weights small.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/format/tensor_source.h"

namespace skein::model {

struct SyntheticModel {
  ModelConfig config;  // neither BOS nor EOS: an answer ends at its length
  std::unique_ptr<TensorSource> weights;
};

// True for a spec, "synthetic:" and a preset's name; false for a path.
bool IsSyntheticSpec(std::string_view model);

// InvalidArgument names the presets that there are.
absl::StatusOr<SyntheticModel> ParseSyntheticSpec(std::string_view spec);

// Weights for any config, in its dtype, under the names that Hugging Face gives its tensors.
// Matrices whose rows are whole blocks of `matrices` are of that type. Nothing is stored: Read
// makes the values, at more than 2 GB/s a core. Thread-safe.
std::unique_ptr<TensorSource> MakeSyntheticWeights(const ModelConfig& config,
                                                   std::string description,
                                                   std::optional<DType> matrices = {});

}  // namespace skein::model

// A model's architecture as the Program of one rank, and where each of its weights comes from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/range.h"
#include "kernels/ops/program.h"
#include "model/config/model_config.h"
#include "model/format/tensor_source.h"

namespace skein::plan {

// Which part of the model a rank holds, and its cache.
struct RankProgramSpec {
  int32_t tp_size = 1;
  int32_t tp_rank = 0;
  int32_t ep_size = 1;
  Range layers;  // of the model; the first stage begins at 0, the last one ends at num_layers
  int64_t context_length = 0;  // that is served, for rotations that depend on it
  int64_t page_size = 16;
  int64_t pages = 1;
  kernels::KvDType kv_dtype = kernels::KvDType::kF32;
  DType hop_dtype = DType::kF32;    // of activations between stages
  DType activations = DType::kF32;  // kernels::ActivationDType
  bool deterministic = false;       // Program's
  bool exact = false;               // Program's
};

// Rows [first_row, first_row + rows of the slice) of a matrix are this slice of a tensor.
struct WeightPart {
  kernels::WeightId weight = 0;
  int32_t component = 0;  // kernels::WeightRows's
  int64_t first_row = 0;
  std::string tensor;
  std::vector<Range> slice;  // rows and columns of the tensor
};

// A vector, as floats: these slices behind each other, to which `add` is added.
struct VectorSlice {
  std::string tensor;
  int64_t total_size = 0;  // of the tensor
  Range elements;
};
struct StoredVector {
  kernels::WeightId weight = 0;
  std::vector<VectorSlice> slices;
  float add = 0;
};

// A vector that comes from the configuration rather than from a tensor.
struct ConstantVector {
  kernels::WeightId weight = 0;
  std::vector<float> values;
};

struct RankProgram {
  kernels::Program program;
  std::vector<WeightPart> parts;
  std::vector<StoredVector> vectors;
  std::vector<ConstantVector> constants;
  kernels::KvSpec kv;
  // Names the slices: ranks of any replica with equal keys read the same bytes.
  std::string slice_key;
};

// Checks every tensor's shape against the configuration, and takes its dtype; where `tensors` is
// null, they are what the configuration says, for a plan. Errors: NotFound and InvalidArgument name
// the tensor.
absl::StatusOr<RankProgram> BuildRankProgram(const model::ModelConfig& config,
                                             const model::TensorSource* tensors,
                                             const RankProgramSpec& spec);

}  // namespace skein::plan

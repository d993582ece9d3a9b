// The Programs of all decoders that a ModelConfig describes.
#pragma once

#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/format/tensor_source.h"
#include "parallel/program/rank_program.h"

namespace skein::plan {

// Tensor parallel after Shoeybi et al., "Megatron-LM" (2019): attention and MLP are split by
// columns, then by rows, with one all-reduce each; embedding and output are split by vocabulary.
absl::StatusOr<RankProgram> BuildDecoderProgram(const model::ModelConfig& config,
                                                const model::TensorSource* tensors,
                                                const RankProgramSpec& spec);

}  // namespace skein::plan

// The matrices of quantised checkpoints as blocks.
//
// Published checkpoints keep a matrix X of [rows, cols] as several tensors:
//
//   X.weight F8_E4M3 [rows, cols] with X.weight_scale or X.weight_scale_inv: one number, [rows, 1],
//     or one for each tile of the configuration's size
//   X.weight I8 [rows, cols] with X.weight_scale: one number, or [rows, groups of columns]
//   X.weight_packed I32 with X.weight_shape and X.weight_scale [rows, groups]: words of 8 or 4
//     columns; of those of 4 bits perhaps X.weight_zero_point, words of 8 rows [rows / 8, groups],
//     and X.weight_g_idx [cols]
//   X.qweight I32 with X.qzeros, words of 8 rows [groups, rows / 8], and X.scales [groups, rows]:
//     AWQ's, words of 8 rows [cols, rows / 8], rows in the order 0 2 4 6 1 3 5 7 from the lowest
//     bits; GPTQ's, words of 8 columns [cols / 8, rows], with X.g_idx [cols], and in its first
//     version zero points that are one too small, each by itself
//
// They are read as one tensor X.weight of FP8, INT8 or INT4 (base/quantized_blocks.h), whose values
// are those of the checkpoint. A group's columns need not follow each other (g_idx): blocks cannot
// say that, and such a matrix is read as F16, each value rounded once, as kernels for such files
// compute it.
//
// Scales of activations (X.input_scale and the like) are left out: rows of integers have their own
// (kernels/packing/quantized_rows.h), and FP8 is multiplied as floats.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "model/config/quantization_config.h"
#include "model/format/tensor_source.h"

namespace skein::model {

// `quantization` is absent where config.json does not say that matrices are quantised; then the
// source stays as it is. Unimplemented for a tensor of a type that is no weight's, and for a matrix
// whose columns or groups are no multiple of 32; InvalidArgument, with the tensor's name, for
// shapes and types that do not fit together. A NaN in FP8, and a scale of INT4 that needs more than
// 16 bits, are InvalidArgument when they are read.
absl::StatusOr<std::unique_ptr<TensorSource>> AsBlockWeights(
    std::unique_ptr<TensorSource> stored, const std::optional<QuantizationConfig>& quantization);

}  // namespace skein::model

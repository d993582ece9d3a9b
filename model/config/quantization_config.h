// How a checkpoint's matrices are quantised, as config.json says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace skein::model {

// What readers of tensors cannot tell by names, types and shapes.
struct QuantizationConfig {
  enum class Method {
    kFp8,                // quant_method fp8 and fbgemm_fp8
    kAwq,                // awq, version gemm
    kGptq,               // gptq
    kCompressedTensors,  // compressed-tensors: FP8, INT8, and integers of 4 or 8 bits in words
  };
  Method method = Method::kFp8;
  // Where scales of FP8 are a matrix: the rows and columns that share one. 0: not said.
  int64_t tile_rows = 0;
  int64_t tile_cols = 0;
  int64_t group_cols = 0;  // of AWQ and GPTQ; 0: not said, or a row is one group
  int32_t added_zero = 0;  // to each stored zero point: 1 in GPTQ's first version
};

// `config` is a whole config.json, of which "quantization_config" or "compression_config" is read;
// nullopt where neither is there. Unimplemented, with what Skein reads, for another method, width
// or layout; InvalidArgument for a field of a wrong type.
absl::StatusOr<std::optional<QuantizationConfig>> ReadQuantizationConfig(
    const nlohmann::json& config);

// Reads <folder>/config.json. A missing file, or one that is not an object, gives nullopt: whoever
// reads the whole of it tells.
absl::StatusOr<std::optional<QuantizationConfig>> LoadQuantizationConfig(const std::string& folder);

}  // namespace skein::model

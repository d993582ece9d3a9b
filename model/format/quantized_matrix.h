// A matrix of a quantised checkpoint, in the forms that quantized_weights.h lists. Internal to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/range.h"
#include "model/config/quantization_config.h"
#include "model/format/tensor_source.h"

namespace skein::model {

class QuantizedMatrix {
 public:
  struct Shape {
    DType dtype = DType::kInt4;
    int64_t rows = 0;
    int64_t cols = 0;
  };

  explicit QuantizedMatrix(const Shape& shape) : shape_(shape) {}
  virtual ~QuantizedMatrix() = default;

  const Shape& shape() const { return shape_; }

  // Writes the rows' columns to `out`, whole blocks. Thread-safe.
  virtual absl::Status Read(Range rows, Range cols, absl::Span<std::byte> out) const = 0;

 private:
  const Shape shape_;
};

// These take the tensors whose names begin with `name`, as in "model.layers.0.mlp.up_proj", of
// `stored`, which outlives the matrix.

// A byte for each element: `name`.weight.
absl::StatusOr<std::unique_ptr<QuantizedMatrix>> OpenBytes(const TensorSource& stored,
                                                           const std::string& name,
                                                           const QuantizationConfig& config);
// compressed-tensors' words: `name`.weight_packed.
absl::StatusOr<std::unique_ptr<QuantizedMatrix>> OpenPackedRows(const TensorSource& stored,
                                                                const std::string& name);
// AWQ's and GPTQ's: `name`.qweight.
absl::StatusOr<std::unique_ptr<QuantizedMatrix>> OpenPackedColumns(
    const TensorSource& stored, const std::string& name, const QuantizationConfig& config);

}  // namespace skein::model

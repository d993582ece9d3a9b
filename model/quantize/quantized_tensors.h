// A GGUF file's tensors as blocks. Internal to model/quantize.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "model/format/tensor_source.h"
#include "model/quantize/importance.h"

namespace skein::model {

// Reading a slice quantises it, on `threads` threads; that takes some 6 bytes of memory an element.
// `types` are the tensors' new ones, in their order: those that differ are blocks, or F16. `source`
// holds F32, F16 or BF16 where they do; `importance` may be null, and outlives the result. Fails
// where threads cannot be started. Read answers InvalidArgument for numbers that are not finite, or
// that F16 overflows on.
absl::StatusOr<std::unique_ptr<TensorSource>> AsQuantizedTensors(
    std::unique_ptr<TensorSource> source, const std::vector<DType>& types,
    const ImportanceMatrix* importance, int threads);

}  // namespace skein::model

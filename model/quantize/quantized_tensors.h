// A GGUF file's tensors as blocks. Internal to model/quantize.
#pragma once

#include <memory>
#include <vector>

#include "base/dtype.h"
#include "model/format/tensor_source.h"
#include "model/quantize/importance.h"

namespace skein::model {

// Reading a slice quantises it, on `threads` threads; memory is some 6 times the slice's. `types`
// are the tensors' new ones, in their order: those that differ are blocks, or F16. `source` holds
// F32, F16 or BF16 where they do; `importance` may be null, and outlives the result. Read answers
// InvalidArgument for numbers that are not finite, or that F16 overflows on.
std::unique_ptr<TensorSource> AsQuantizedTensors(std::unique_ptr<TensorSource> source,
                                                 std::vector<DType> types,
                                                 const ImportanceMatrix* importance, int threads);

}  // namespace skein::model

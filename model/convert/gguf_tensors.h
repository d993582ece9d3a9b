// The tensors of a Hugging Face folder as those of a GGUF file.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "model/config/gguf_of_config.h"
#include "model/config/model_config.h"
#include "model/format/tensor_source.h"

namespace skein::model {

// Names, order of rows and types as llama.cpp's converter writes them: heads' rows of queries and
// keys interleaved where the architecture has them so, the experts of a layer as one tensor, gains
// with what Gemma adds to them; vectors and routers in F32, matrices in `matrices`, or in the type
// that they have. Tensors come sorted by name. `architecture` is that of files. Unimplemented names
// a tensor that files have no name for, or that is quantised.
absl::StatusOr<std::unique_ptr<TensorSource>> AsGgufTensors(std::unique_ptr<TensorSource> folder,
                                                            const ModelConfig& config,
                                                            std::string architecture,
                                                            const std::vector<GgufVector>& vectors,
                                                            std::optional<DType> matrices);

}  // namespace skein::model

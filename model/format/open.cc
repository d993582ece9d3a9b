#include "model/format/open.h"

#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/config/quantization_config.h"
#include "model/format/gguf.h"
#include "model/format/gguf_weights.h"
#include "model/format/quantized_weights.h"
#include "model/format/safetensors.h"

namespace skein::model {

absl::StatusOr<std::unique_ptr<TensorSource>> OpenTensorSource(const std::string& folder_or_file) {
  if (!IsGgufPath(folder_or_file)) {
    SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> stored, OpenSafetensors(folder_or_file));
    SKEIN_ASSIGN_OR_RETURN(const std::optional<QuantizationConfig> quantization,
                           LoadQuantizationConfig(folder_or_file));
    return AsBlockWeights(std::move(stored), quantization);
  }
  SKEIN_ASSIGN_OR_RETURN(GgufModel model, OpenGguf(folder_or_file));
  absl::StatusOr<std::unique_ptr<TensorSource>> weights = AsHuggingFaceWeights(std::move(model));
  if (!weights.ok()) return Annotate(weights.status(), folder_or_file);
  return weights;
}

}  // namespace skein::model

#include "model/quantize/importance_counter.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/config/gguf_of_config.h"
#include "model/config/model_config.h"
#include "model/format/gguf.h"
#include "model/format/gguf_keys.h"

namespace skein::model {
namespace {

absl::StatusOr<std::string> ArchitectureOf(const std::string& model, const ModelConfig& config) {
  if (!IsGgufPath(model)) {
    absl::StatusOr<GgufOfConfig> made = MakeGgufOfConfig(config);
    if (!made.ok()) return Annotate(made.status(), model);
    return made->metadata.at(std::string(kGgufArchitecture)).strings[0];
  }
  SKEIN_ASSIGN_OR_RETURN(const GgufMetadata metadata, ReadGgufMetadata(model));
  SKEIN_ASSIGN_OR_RETURN(const std::string_view name, metadata.String(kGgufArchitecture));
  return std::string(name);
}

}  // namespace

absl::StatusOr<ImportanceCounter> ImportanceCounter::Create(const std::string& model) {
  SKEIN_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(model));
  SKEIN_ASSIGN_OR_RETURN(const std::string architecture, ArchitectureOf(model, config));
  return ImportanceCounter(architecture, config.experts.count);
}

void ImportanceCounter::Add(const std::string& tensor, const float* in, int64_t rows,
                            int64_t cols) {
  const std::optional<GgufPlace> place = GgufPlaceOf(dialect_, tensor);
  if (!place) return;
  Sums& sums = sums_[place->name];
  if (sums.cols == 0) {
    const int64_t experts = place->expert < 0 ? 1 : experts_;
    sums = {.cols = cols,
            .squares = std::vector<double>(static_cast<size_t>(experts * cols)),
            .counts = std::vector<int64_t>(static_cast<size_t>(experts))};
  }
  const int64_t expert = std::max<int64_t>(place->expert, 0);
  sums.counts[static_cast<size_t>(expert)] += rows;
  double* const squares = sums.squares.data() + expert * cols;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const double x = in[row * cols + col];
      squares[col] += x * x;
    }
  }
}

ImportanceMatrix ImportanceCounter::Matrix() const {
  ImportanceMatrix matrix;
  for (const auto& [name, sums] : sums_) {
    matrix.tensors[name] = {.cols = sums.cols,
                            .sums = {sums.squares.begin(), sums.squares.end()},
                            .counts = sums.counts};
  }
  return matrix;
}

}  // namespace skein::model

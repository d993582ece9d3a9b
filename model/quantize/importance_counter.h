// Makes an importance matrix of the inputs of a model's products.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/format/gguf_names.h"
#include "model/quantize/importance.h"

namespace skein::model {

// One thread uses it.
class ImportanceCounter {
 public:
  // Of a model's tensors: a folder's or a GGUF file's. Errors name it; Unimplemented: no GGUF file
  // can hold it.
  static absl::StatusOr<ImportanceCounter> Create(const std::string& model);

  // A tensor under Hugging Face's name was multiplied by `in`, [rows, cols]. Tensors that files
  // have no name for are passed over.
  void Add(const std::string& tensor, const float* in, int64_t rows, int64_t cols);

  // What was counted so far; of experts that no row chose, zeros.
  ImportanceMatrix Matrix() const;

 private:
  // The model is of this architecture in GGUF files, and has so many experts a layer.
  ImportanceCounter(std::string_view architecture, int64_t experts)
      : dialect_(GgufDialectOf(architecture)), experts_(experts) {}

  struct Sums {
    int64_t cols = 0;
    std::vector<double> squares;  // [experts, cols]
    std::vector<int64_t> counts;  // [experts]
  };

  GgufDialect dialect_;
  int64_t experts_ = 0;
  std::map<std::string, Sums> sums_;  // by the names of files
};

}  // namespace skein::model

// Tensors that lie in files as their elements in one piece, row-major, as all formats keep them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/format/file.h"
#include "model/format/tensor_source.h"

namespace skein::model {

// A tensor, and where its elements begin in its file.
struct TensorEntry {
  TensorInfo tensor;
  int64_t offset_bytes = 0;
};

// A file, and what its header says.
struct TensorFile {
  File file;
  std::vector<TensorEntry> entries;
};

// No two entries have one name. `description` names the source in messages.
std::unique_ptr<TensorSource> MakeFileSource(std::string description,
                                             std::vector<TensorFile> files);

}  // namespace skein::model

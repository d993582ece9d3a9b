// A file that is written piece by piece, and tensors as pieces. Internal to model/format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/format/tensor_source.h"

namespace skein::model {

// Errors name the path and quote the system.
class PieceWriter {
 public:
  static absl::StatusOr<PieceWriter> Create(const std::string& path);

  absl::Status Write(const void* bytes, size_t size);
  // A tensor's elements, in pieces of some 16 MiB, of at least one element of its first dimension.
  // Calls
  // `on_piece`, where there is one, with the bytes of each.
  absl::Status WriteTensor(const TensorSource& source, const TensorInfo& tensor,
                           const std::function<void(int64_t)>& on_piece = nullptr);
  absl::Status Close();

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  PieceWriter(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

// Consecutive tensors for one file each, of at most `max_bytes` and at least one tensor.
std::vector<absl::Span<const TensorInfo>> SplitTensors(absl::Span<const TensorInfo> tensors,
                                                       int64_t max_bytes);

}  // namespace skein::model

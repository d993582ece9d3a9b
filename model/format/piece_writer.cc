#include "model/format/piece_writer.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_util.h"

namespace skein::model {
namespace {

// What is read and written at once: large enough that calls cost nothing.
constexpr int64_t kPieceBytes = 16 << 20;

int64_t BytesOf(const TensorInfo& tensor) { return DTypeBytes(tensor.dtype, tensor.elements()); }

}  // namespace

absl::StatusOr<PieceWriter> PieceWriter::Create(const std::string& path) {
  PieceWriter writer(path, std::fopen(path.c_str(), "wb"));
  if (writer.file_ == nullptr) return ErrnoStatus(errno, path);
  return writer;
}

absl::Status PieceWriter::Write(const void* bytes, size_t size) {
  if (std::fwrite(bytes, 1, size, file_.get()) == size) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("writing ", path_));
}

absl::Status PieceWriter::Close() {
  if (std::fclose(file_.release()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("writing ", path_));
}

absl::Status PieceWriter::WriteTensor(const TensorSource& source, const TensorInfo& tensor,
                                      const std::function<void(int64_t)>& on_piece) {
  const int64_t bytes = BytesOf(tensor);
  if (bytes == 0) return absl::OkStatus();
  std::vector<Range> slice;
  for (int64_t size : tensor.shape) slice.push_back({0, size});
  const int64_t rows = slice.empty() ? 1 : tensor.shape[0];
  const int64_t row_bytes = bytes / rows;
  const int64_t step = std::clamp<int64_t>(kPieceBytes / row_bytes, 1, rows);
  std::vector<std::byte> piece(static_cast<size_t>(step * row_bytes));
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t end = std::min(rows, row + step);
    if (!slice.empty()) slice[0] = {row, end};
    const auto size = static_cast<size_t>((end - row) * row_bytes);
    SKEIN_RETURN_IF_ERROR(source.Read(tensor, slice, {piece.data(), size}));
    SKEIN_RETURN_IF_ERROR(Write(piece.data(), size));
    if (on_piece) on_piece(static_cast<int64_t>(size));
  }
  return absl::OkStatus();
}

std::vector<absl::Span<const TensorInfo>> SplitTensors(absl::Span<const TensorInfo> tensors,
                                                       int64_t max_bytes) {
  std::vector<absl::Span<const TensorInfo>> shards;
  size_t begin = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t more = BytesOf(tensors[i]);
    if (i > begin && more > max_bytes - bytes) {
      shards.push_back(tensors.subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += more;
  }
  shards.push_back(tensors.subspan(begin));
  return shards;
}

}  // namespace skein::model

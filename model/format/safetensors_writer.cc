#include "model/format/safetensors_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "nlohmann/json.hpp"

namespace skein::model {
namespace {

using nlohmann::json;

// What is read and written at once: large enough that calls cost nothing.
constexpr int64_t kPieceBytes = 16 << 20;

int64_t BytesOf(const TensorInfo& tensor) { return DTypeBytes(tensor.dtype, tensor.elements()); }

class FileWriter {
 public:
  static absl::StatusOr<FileWriter> Create(const std::string& path) {
    FileWriter writer(path, std::fopen(path.c_str(), "wb"));
    if (writer.file_ == nullptr) return ErrnoStatus(errno, path);
    return writer;
  }

  absl::Status Write(const void* bytes, size_t size) {
    if (std::fwrite(bytes, 1, size, file_.get()) == size) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("writing ", path_));
  }

  absl::Status Close() {
    if (std::fclose(file_.release()) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("writing ", path_));
  }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  FileWriter(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

absl::Status WriteText(const std::string& path, const std::string& text) {
  SKEIN_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::Create(path));
  SKEIN_RETURN_IF_ERROR(writer.Write(text.data(), text.size()));
  return writer.Close();
}

// Length and JSON, padded so that the data begin at a multiple of 8.
std::string Header(absl::Span<const TensorInfo> tensors) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    const int64_t end = offset + BytesOf(tensor);
    header[tensor.name] = {{"dtype", std::string(DTypeName(tensor.dtype))},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string prefix(8, '\0');
  for (size_t i = 0; i < prefix.size(); ++i) {
    prefix[i] = static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i));
  }
  return prefix + text;
}

// The tensor in pieces of whole rows of its first dimension.
absl::Status CopyTensor(const TensorSource& source, const TensorInfo& tensor, FileWriter& writer) {
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
    const size_t size = static_cast<size_t>((end - row) * row_bytes);
    SKEIN_RETURN_IF_ERROR(source.Read(tensor, slice, {piece.data(), size}));
    SKEIN_RETURN_IF_ERROR(writer.Write(piece.data(), size));
  }
  return absl::OkStatus();
}

absl::Status WriteShard(const TensorSource& source, absl::Span<const TensorInfo> tensors,
                        const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::Create(path));
  const std::string header = Header(tensors);
  SKEIN_RETURN_IF_ERROR(writer.Write(header.data(), header.size()));
  for (const TensorInfo& tensor : tensors) {
    SKEIN_RETURN_IF_ERROR(CopyTensor(source, tensor, writer));
  }
  return writer.Close();
}

std::vector<absl::Span<const TensorInfo>> Split(absl::Span<const TensorInfo> tensors,
                                                int64_t max_shard_bytes) {
  std::vector<absl::Span<const TensorInfo>> shards;
  size_t begin = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t more = BytesOf(tensors[i]);
    if (i > begin && more > max_shard_bytes - bytes) {
      shards.push_back(tensors.subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += more;
  }
  shards.push_back(tensors.subspan(begin));
  return shards;
}

}  // namespace

absl::Status WriteSafetensors(const TensorSource& source, const std::string& folder,
                              int64_t max_shard_bytes) {
  const auto shards = Split(source.tensors(), max_shard_bytes);
  const std::string single = absl::StrCat(folder, "/model.safetensors");
  if (shards.size() == 1) return WriteShard(source, shards[0], single);
  std::error_code ignored;
  std::filesystem::remove(single, ignored);  // it would be read instead of the shards
  json weight_map = json::object();
  int64_t total_bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, shards.size());
    SKEIN_RETURN_IF_ERROR(WriteShard(source, shards[i], absl::StrCat(folder, "/", name)));
    for (const TensorInfo& tensor : shards[i]) {
      weight_map[tensor.name] = name;
      total_bytes += BytesOf(tensor);
    }
  }
  const json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}};
  return WriteText(absl::StrCat(folder, "/model.safetensors.index.json"), index.dump(2) + "\n");
}

absl::Status WriteModelFolder(const ModelConfig& config, const TensorSource& source,
                              const std::string& folder, int64_t max_shard_bytes) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return ErrnoStatus(error.value(), folder);
  SKEIN_RETURN_IF_ERROR(WriteText(absl::StrCat(folder, "/config.json"), ModelConfigToJson(config)));
  return WriteSafetensors(source, folder, max_shard_bytes);
}

}  // namespace skein::model

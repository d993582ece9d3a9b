#include "model/format/safetensors_writer.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/format/piece_writer.h"
#include "nlohmann/json.hpp"

namespace skein::model {
namespace {

using nlohmann::json;

int64_t BytesOf(const TensorInfo& tensor) { return DTypeBytes(tensor.dtype, tensor.elements()); }

absl::Status WriteText(const std::string& path, const std::string& text) {
  SKEIN_ASSIGN_OR_RETURN(PieceWriter writer, PieceWriter::Create(path));
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

absl::Status WriteShard(const TensorSource& source, absl::Span<const TensorInfo> tensors,
                        const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(PieceWriter writer, PieceWriter::Create(path));
  const std::string header = Header(tensors);
  SKEIN_RETURN_IF_ERROR(writer.Write(header.data(), header.size()));
  for (const TensorInfo& tensor : tensors) {
    SKEIN_RETURN_IF_ERROR(writer.WriteTensor(source, tensor));
  }
  return writer.Close();
}

}  // namespace

absl::Status WriteSafetensors(const TensorSource& source, const std::string& folder,
                              int64_t max_shard_bytes) {
  const auto shards = SplitTensors(source.tensors(), max_shard_bytes);
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

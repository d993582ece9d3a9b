#include "model/format/gguf_writer.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/format/gguf_header.h"
#include "model/format/piece_writer.h"

namespace skein::model {
namespace {

constexpr std::string_view kEnding = ".gguf";
constexpr const char* kPart = ".part";  // of a file that is not whole yet
constexpr uint32_t kVersion = 3;
constexpr size_t kAlignment = 32;  // what files have that tell of none

template <typename Number>
void Append(Number number, std::string& bytes) {
  char raw[sizeof(number)];
  std::memcpy(raw, &number, sizeof(number));
  bytes.append(raw, sizeof(number));
}

void AppendText(std::string_view text, std::string& bytes) {
  Append(static_cast<uint64_t>(text.size()), bytes);
  bytes += text;
}

template <typename Number>
GgufValue Numbers(GgufType type, bool is_array, const std::vector<Number>& values) {
  GgufValue value;
  value.type = type;
  value.is_array = is_array;
  value.count = static_cast<int64_t>(values.size());
  for (const Number number : values) Append(number, value.numbers);
  return value;
}

void AppendElements(const GgufValue& value, std::string& bytes);

void AppendArray(const GgufValue& value, std::string& bytes) {
  Append(static_cast<uint32_t>(value.type), bytes);
  Append(static_cast<uint64_t>(value.count), bytes);
  AppendElements(value, bytes);
}

void AppendElements(const GgufValue& value, std::string& bytes) {
  bytes += value.numbers;
  for (const std::string& text : value.strings) AppendText(text, bytes);
  for (const GgufValue& array : value.arrays) AppendArray(array, bytes);
}

void AppendMetadata(const GgufMetadata::Values& metadata, std::string& bytes) {
  for (const auto& [key, value] : metadata) {
    AppendText(key, bytes);
    if (value.is_array) {
      Append(static_cast<uint32_t>(GgufType::kArray), bytes);
      AppendArray(value, bytes);
    } else {
      Append(static_cast<uint32_t>(value.type), bytes);
      AppendElements(value, bytes);
    }
  }
}

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

size_t BytesOf(const TensorInfo& tensor) {
  return static_cast<size_t>(DTypeBytes(tensor.dtype, tensor.elements()));
}

absl::StatusOr<std::string> Header(const GgufMetadata::Values& metadata,
                                   absl::Span<const TensorInfo> tensors) {
  std::string bytes = "GGUF";
  Append(kVersion, bytes);
  Append(static_cast<uint64_t>(tensors.size()), bytes);
  Append(static_cast<uint64_t>(metadata.size()), bytes);
  AppendMetadata(metadata, bytes);
  size_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    const std::optional<uint32_t> type = GgufTensorType(tensor.dtype);
    if (!type) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name, "' is of ",
                                                     std::string(DTypeName(tensor.dtype)),
                                                     ", which GGUF files have not"));
    }
    AppendText(tensor.name, bytes);
    Append(static_cast<uint32_t>(tensor.shape.size()), bytes);
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
      Append(static_cast<uint64_t>(*size), bytes);
    }
    Append(*type, bytes);
    Append(static_cast<uint64_t>(offset), bytes);
    offset = Aligned(offset + BytesOf(tensor));
  }
  bytes.resize(Aligned(bytes.size()));
  return bytes;
}

absl::Status WriteOne(const GgufMetadata::Values& metadata, const TensorSource& source,
                      absl::Span<const TensorInfo> tensors, const std::string& path,
                      const std::function<void(int64_t)>& on_piece) {
  SKEIN_ASSIGN_OR_RETURN(const std::string header, Header(metadata, tensors));
  SKEIN_ASSIGN_OR_RETURN(PieceWriter writer, PieceWriter::Create(path));
  SKEIN_RETURN_IF_ERROR(writer.Write(header.data(), header.size()));
  constexpr std::array<char, kAlignment> kPadding = {};
  for (const TensorInfo& tensor : tensors) {
    SKEIN_RETURN_IF_ERROR(writer.WriteTensor(source, tensor, on_piece));
    const size_t bytes = BytesOf(tensor);
    SKEIN_RETURN_IF_ERROR(writer.Write(kPadding.data(), Aligned(bytes) - bytes));
  }
  return writer.Close();
}

// PATH.gguf, or PATH-00001-of-00003.gguf and so on.
absl::StatusOr<std::vector<std::string>> GgufFileNames(const TensorSource& source,
                                                       const std::string& path,
                                                       int64_t max_file_bytes) {
  if (!path.ends_with(kEnding)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": a GGUF file's name ends with .gguf"));
  }
  const size_t count = SplitTensors(source.tensors(), max_file_bytes).size();
  if (count == 1) return std::vector<std::string>{path};
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    names.push_back(absl::StrFormat("%s-%05d-of-%05d.gguf",
                                    path.substr(0, path.size() - kEnding.size()), i + 1, count));
  }
  return names;
}

}  // namespace

GgufValue GgufUint32(int64_t value) {
  return Numbers(GgufType::kUint32, false, std::vector<uint32_t>{static_cast<uint32_t>(value)});
}
GgufValue GgufFloat32(double value) {
  return Numbers(GgufType::kFloat32, false, std::vector<float>{static_cast<float>(value)});
}
GgufValue GgufBool(bool value) {
  return Numbers(GgufType::kBool, false, std::vector<uint8_t>{static_cast<uint8_t>(value)});
}
GgufValue GgufText(std::string_view value) {
  GgufValue text = GgufTexts({std::string(value)});
  text.is_array = false;
  return text;
}
GgufValue GgufTexts(std::vector<std::string> values) {
  GgufValue value;
  value.type = GgufType::kString;
  value.is_array = true;
  value.count = static_cast<int64_t>(values.size());
  value.strings = std::move(values);
  return value;
}
GgufValue GgufInt32s(const std::vector<int32_t>& values) {
  return Numbers(GgufType::kInt32, true, values);
}
GgufValue GgufFloat32s(const std::vector<float>& values) {
  return Numbers(GgufType::kFloat32, true, values);
}

absl::StatusOr<std::vector<std::string>> WriteGguf(const GgufMetadata::Values& metadata,
                                                   const TensorSource& source,
                                                   const std::string& path,
                                                   const GgufWriteOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                         GgufFileNames(source, path, options.max_file_bytes));
  std::error_code error;
  for (const std::string& file : files) {
    if (std::filesystem::exists(file, error)) {
      return absl::AlreadyExistsError(absl::StrCat(file, " is there already"));
    }
  }
  const auto parts = SplitTensors(source.tensors(), options.max_file_bytes);
  int64_t written = 0;
  const auto on_piece = [&](int64_t bytes) {
    written += bytes;
    if (options.on_progress) options.on_progress(written);
  };
  absl::Status status;
  for (size_t i = 0; i < parts.size() && status.ok(); ++i) {
    GgufMetadata::Values values;
    if (i == 0) values = metadata;
    if (parts.size() > 1) {
      values["split.no"] =
          Numbers(GgufType::kUint16, false, std::vector<uint16_t>{static_cast<uint16_t>(i)});
      values["split.count"] = Numbers(GgufType::kUint16, false,
                                      std::vector<uint16_t>{static_cast<uint16_t>(parts.size())});
      values["split.tensors.count"] =
          Numbers(GgufType::kInt32, false,
                  std::vector<int32_t>{static_cast<int32_t>(source.tensors().size())});
    }
    status = WriteOne(values, source, parts[i], files[i] + kPart, on_piece);
  }
  for (const std::string& file : files) {
    if (!status.ok()) break;
    std::filesystem::rename(file + kPart, file, error);
    if (error) status = ErrnoStatus(error.value(), file);
  }
  if (status.ok()) return files;
  for (const std::string& file : files) std::filesystem::remove(file + kPart, error);
  return status;
}

}  // namespace skein::model

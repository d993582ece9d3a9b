#include "model/format/gguf.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/format/file.h"
#include "model/format/file_source.h"
#include "model/format/gguf_header.h"

namespace skein::model {
namespace {

constexpr std::string_view kEnding = ".gguf";
constexpr int64_t kFirstBytes = 1 << 20;

struct OpenedFile {
  File file;
  GgufHeader header;
};

absl::StatusOr<GgufHeader> ReadHeader(const File& file) {
  std::vector<std::byte> head;
  for (int64_t bytes = kFirstBytes;; bytes *= 4) {
    head.resize(static_cast<size_t>(std::min(bytes, file.size_bytes())));
    SKEIN_RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(head)));
    absl::StatusOr<GgufHeader> header = ParseGgufHeader(head, file.size_bytes());
    if (!absl::IsOutOfRange(header.status())) return header;
  }
}

absl::StatusOr<OpenedFile> OpenFile(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(File file, File::Open(path));
  absl::StatusOr<GgufHeader> header = ReadHeader(file);
  if (!header.ok()) return Annotate(header.status(), path);
  return OpenedFile{std::move(file), *std::move(header)};
}

// PREFIX-00002-of-00003.gguf.
struct SplitName {
  std::string prefix;
  int64_t number = 0;  // from 1
  int64_t count = 0;

  std::string Path(int64_t i) const {
    return absl::StrCat(prefix, absl::StrFormat("-%05d-of-%05d", i, count), std::string(kEnding));
  }
};

std::optional<int64_t> FiveDigits(std::string_view text) {
  int64_t number = 0;
  if (text.size() != 5 || !std::all_of(text.begin(), text.end(), ::isdigit) ||
      !absl::SimpleAtoi(std::string(text), &number)) {
    return std::nullopt;
  }
  return number;
}

std::optional<SplitName> ParseSplitName(std::string_view path) {
  constexpr size_t kSuffix = std::string_view("-00001-of-00003.gguf").size();
  if (path.size() <= kSuffix || !IsGgufPath(std::string(path))) return std::nullopt;
  const std::string_view suffix = path.substr(path.size() - kSuffix);
  const std::optional<int64_t> number = FiveDigits(suffix.substr(1, 5));
  const std::optional<int64_t> count = FiveDigits(suffix.substr(10, 5));
  if (suffix[0] != '-' || suffix.substr(6, 4) != "-of-" || !number || !count) return std::nullopt;
  return SplitName{std::string(path.substr(0, path.size() - kSuffix)), *number, *count};
}

// What a file says of its place among those of its model; 1 of 1 where it says nothing.
struct SplitPlace {
  int64_t number = 1;  // from 1
  int64_t count = 1;
};

absl::StatusOr<SplitPlace> PlaceOf(const OpenedFile& opened) {
  const GgufMetadata& metadata = opened.header.metadata;
  if (!metadata.Has("split.count")) return SplitPlace{};
  const absl::StatusOr<int64_t> count = metadata.Integer("split.count");
  if (!count.ok()) return Annotate(count.status(), opened.file.path());
  if (*count <= 1) return SplitPlace{};
  const absl::StatusOr<int64_t> index = metadata.Integer("split.no");
  if (!index.ok()) return Annotate(index.status(), opened.file.path());
  if (*count > 99999 || *index < 0 || *index >= *count) {
    return absl::InvalidArgumentError(absl::StrCat(opened.file.path(), ": split.no is ", *index,
                                                   " of a split.count of ", *count));
  }
  return SplitPlace{*index + 1, *count};
}

// The name of a file of a split model, which must be what the file says; unset for one alone.
absl::StatusOr<std::optional<SplitName>> NameOf(const OpenedFile& opened) {
  SKEIN_ASSIGN_OR_RETURN(const SplitPlace place, PlaceOf(opened));
  if (place.count == 1) return std::nullopt;
  const std::string& path = opened.file.path();
  std::optional<SplitName> name = ParseSplitName(path);
  if (!name || name->number != place.number || name->count != place.count) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: is file %d of %d of a split model; its name must end in -%05d-of-%05d.gguf, as "
        "those of the others beside it",
        path, place.number, place.count, place.number, place.count));
  }
  return name;
}

// The files of the model that `path` is of, in order.
absl::StatusOr<std::vector<OpenedFile>> OpenFiles(const std::string& path) {
  std::vector<OpenedFile> files;
  SKEIN_ASSIGN_OR_RETURN(OpenedFile named, OpenFile(path));
  SKEIN_ASSIGN_OR_RETURN(const std::optional<SplitName> name, NameOf(named));
  if (!name) {
    files.push_back(std::move(named));
    return files;
  }
  for (int64_t i = 1; i <= name->count; ++i) {
    SKEIN_ASSIGN_OR_RETURN(OpenedFile opened, OpenFile(name->Path(i)));
    SKEIN_ASSIGN_OR_RETURN(const SplitPlace other, PlaceOf(opened));
    if (other.number != i || other.count != name->count) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: says that it is file %d of %d; by its name it is %d of %d",
                          name->Path(i), other.number, other.count, i, name->count));
    }
    files.push_back(std::move(opened));
  }
  return files;
}

// Names of all files' tensors differ, and there are as many as the first file says.
absl::Status CheckTensors(const std::vector<OpenedFile>& files) {
  std::vector<std::pair<std::string_view, std::string_view>> names;  // of tensors, and their files
  for (const OpenedFile& file : files) {
    for (const TensorEntry& entry : file.header.entries) {
      names.emplace_back(entry.tensor.name, file.file.path());
    }
  }
  std::sort(names.begin(), names.end());
  for (size_t i = 1; i < names.size(); ++i) {
    if (names[i - 1].first == names[i].first) {
      return absl::InvalidArgumentError(absl::StrCat(std::string(names[i].second), ": tensor '",
                                                     std::string(names[i].first), "' is in ",
                                                     std::string(names[i - 1].second), ", too"));
    }
  }
  const GgufMetadata& metadata = files[0].header.metadata;
  if (!metadata.Has("split.tensors.count")) return absl::OkStatus();
  const absl::StatusOr<int64_t> said = metadata.Integer("split.tensors.count");
  if (!said.ok()) return Annotate(said.status(), files[0].file.path());
  const int64_t count = *said;
  if (count != static_cast<int64_t>(names.size())) {
    return absl::InvalidArgumentError(absl::StrCat(files[0].file.path(), ": the model has ", count,
                                                   " tensors, its files hold ", names.size()));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsGgufPath(const std::string& path) {
  std::error_code ignored;
  return absl::EndsWithIgnoreCase(path, std::string(kEnding)) &&
         !std::filesystem::is_directory(path, ignored);
}

absl::StatusOr<GgufMetadata> ReadGgufMetadata(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(OpenedFile opened, OpenFile(path));
  SKEIN_ASSIGN_OR_RETURN(const std::optional<SplitName> name, NameOf(opened));
  if (name && name->number != 1) {
    SKEIN_ASSIGN_OR_RETURN(opened, OpenFile(name->Path(1)));
  }
  return std::move(opened.header.metadata);
}

absl::StatusOr<GgufModel> OpenGguf(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(std::vector<OpenedFile> opened, OpenFiles(path));
  SKEIN_RETURN_IF_ERROR(CheckTensors(opened));
  GgufModel model;
  model.metadata = std::move(opened[0].header.metadata);
  std::vector<TensorFile> files;
  for (OpenedFile& file : opened) {
    files.push_back({std::move(file.file), std::move(file.header.entries)});
  }
  model.tensors = MakeFileSource(path, std::move(files));
  return model;
}

}  // namespace skein::model

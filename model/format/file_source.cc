#include "model/format/file_source.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <utility>

#include "base/status_macros.h"

namespace skein::model {
namespace {

class FileSource final : public TensorSource {
 public:
  FileSource(std::string description, std::vector<TensorFile> files);

  std::string_view description() const override { return description_; }
  absl::Span<const TensorInfo> tensors() const override { return tensors_; }

  std::vector<FileInfo> files() const override {
    std::vector<FileInfo> infos;
    for (const File& file : files_) {
      infos.push_back({std::filesystem::path(file.path()).filename(), file.size_bytes()});
    }
    std::sort(infos.begin(), infos.end(),
              [](const FileInfo& a, const FileInfo& b) { return a.name < b.name; });
    return infos;
  }

 protected:
  absl::Status ReadChecked(const TensorInfo& tensor, absl::Span<const Range> slice,
                           absl::Span<std::byte> out) const override;

 private:
  struct Location {
    size_t file = 0;  // index of files_
    int64_t offset_bytes = 0;
  };

  const std::string description_;
  std::vector<File> files_;
  std::vector<TensorInfo> tensors_;
  std::vector<Location> locations_;  // of tensors_
};

FileSource::FileSource(std::string description, std::vector<TensorFile> files)
    : description_(std::move(description)) {
  std::vector<std::pair<TensorInfo, Location>> all;
  for (TensorFile& file : files) {
    for (TensorEntry& entry : file.entries) {
      all.emplace_back(std::move(entry.tensor), Location{files_.size(), entry.offset_bytes});
    }
    files_.push_back(std::move(file.file));
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.first.name < b.first.name; });
  for (auto& [tensor, location] : all) {
    tensors_.push_back(std::move(tensor));
    locations_.push_back(location);
  }
}

// Dimensions after `split` are whole, so that a slice is runs of [slice[split], rest...]. Runs that
// differ in dimension split - 1 only are equally far apart: one strided read for each combination
// of the dimensions before.
absl::Status FileSource::ReadChecked(const TensorInfo& tensor, absl::Span<const Range> slice,
                                     absl::Span<std::byte> out) const {
  const Location& location = locations_[static_cast<size_t>(&tensor - tensors_.data())];
  const File& file = files_[location.file];
  const size_t rank = slice.size();
  std::vector<int64_t> pitch(rank + 1, 1);  // elements from one index of dimension d to the next,
  for (size_t d = rank; d-- > 0;) pitch[d] = pitch[d + 1] * tensor.shape[d];  // at pitch[d + 1]
  size_t split = rank;
  while (split > 0 && slice[split - 1] == Range{0, tensor.shape[split - 1]}) --split;
  if (split == 0) return file.ReadAt(location.offset_bytes, out);
  --split;

  const auto bytes = [&](int64_t elements) { return DTypeBytes(tensor.dtype, elements); };
  const int64_t run = slice[split].size() * pitch[split + 1];
  const int64_t count = split == 0 ? 1 : slice[split - 1].size();
  const size_t outer = split == 0 ? 0 : split - 1;
  std::vector<int64_t> index(rank);
  for (size_t d = 0; d < rank; ++d) index[d] = slice[d].begin;
  for (std::byte* to = out.data();; to += bytes(run * count)) {
    int64_t first = 0;
    for (size_t d = 0; d <= split; ++d) first += index[d] * pitch[d + 1];
    SKEIN_RETURN_IF_ERROR(file.ReadStrided(location.offset_bytes + bytes(first), bytes(run),
                                           bytes(split == 0 ? run : pitch[split]), count, to));
    size_t d = outer;
    while (d > 0 && ++index[d - 1] == slice[d - 1].end) {
      index[d - 1] = slice[d - 1].begin;
      --d;
    }
    if (d == 0) return absl::OkStatus();
  }
}

}  // namespace

std::unique_ptr<TensorSource> MakeFileSource(std::string description,
                                             std::vector<TensorFile> files) {
  return std::make_unique<FileSource>(std::move(description), std::move(files));
}

}  // namespace skein::model

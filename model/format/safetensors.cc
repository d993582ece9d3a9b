#include "model/format/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/format/file.h"
#include "model/format/safetensors_header.h"

namespace skein::model {
namespace {

constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
// The index of a model of 200,000 tensors has some 20 MB.
constexpr int64_t kMaxIndexBytes = 64 << 20;

// A file and what its header says.
struct Shard {
  File file;
  std::vector<SafetensorsEntry> entries;  // sorted by name
};

class SafetensorsSource final : public TensorSource {
 public:
  // No two shards have a tensor of one name.
  SafetensorsSource(std::string description, std::vector<Shard> shards);

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

SafetensorsSource::SafetensorsSource(std::string description, std::vector<Shard> shards)
    : description_(std::move(description)) {
  std::vector<std::pair<TensorInfo, Location>> all;
  for (Shard& shard : shards) {
    for (SafetensorsEntry& entry : shard.entries) {
      all.emplace_back(std::move(entry.tensor), Location{files_.size(), entry.offset_bytes});
    }
    files_.push_back(std::move(shard.file));
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
absl::Status SafetensorsSource::ReadChecked(const TensorInfo& tensor, absl::Span<const Range> slice,
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

absl::StatusOr<std::vector<SafetensorsEntry>> ReadHeader(const File& file) {
  std::byte prefix[kSafetensorsPrefixBytes] = {};
  const size_t prefix_bytes =
      static_cast<size_t>(std::min<int64_t>(kSafetensorsPrefixBytes, file.size_bytes()));
  SKEIN_RETURN_IF_ERROR(file.ReadAt(0, {prefix, prefix_bytes}));
  SKEIN_ASSIGN_OR_RETURN(const int64_t length,
                         ParseSafetensorsPrefix({prefix, prefix_bytes}, file.size_bytes()));
  std::string json(static_cast<size_t>(length), '\0');
  SKEIN_RETURN_IF_ERROR(file.ReadAt(kSafetensorsPrefixBytes,
                                    {reinterpret_cast<std::byte*>(json.data()), json.size()}));
  return ParseSafetensorsHeader(json, file.size_bytes());
}

absl::StatusOr<Shard> OpenShard(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(File file, File::Open(path));
  absl::StatusOr<std::vector<SafetensorsEntry>> entries = ReadHeader(file);
  if (!entries.ok()) return Annotate(entries.status(), path);
  return Shard{std::move(file), *std::move(entries)};
}

absl::StatusOr<std::unique_ptr<TensorSource>> OpenSingle(const std::string& path) {
  std::vector<Shard> shards;
  SKEIN_ASSIGN_OR_RETURN(Shard shard, OpenShard(path));
  shards.push_back(std::move(shard));
  return std::make_unique<SafetensorsSource>(path, std::move(shards));
}

// Shard name to the names of its tensors, sorted.
using ShardMap = std::map<std::string, std::vector<std::string>>;

absl::StatusOr<ShardMap> ParseIndex(const std::string& text) {
  SKEIN_ASSIGN_OR_RETURN(const nlohmann::json index, ParseJson(text));
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return absl::InvalidArgumentError("has no object 'weight_map'");
  }
  ShardMap shards;
  for (const auto& item : index["weight_map"].items()) {
    const std::string shard = item.value().is_string() ? item.value().get<std::string>() : "";
    if (shard.empty() || shard == "." || shard == ".." ||
        shard.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("weight_map of tensor '", item.key(),
                                                     "' must be the name of a file in the folder"));
    }
    shards[shard].push_back(item.key());
  }
  if (shards.empty()) return absl::InvalidArgumentError("weight_map is empty");
  return shards;
}

// Both are sorted by name.
absl::Status CheckShard(const std::vector<std::string>& mapped,
                        const std::vector<SafetensorsEntry>& entries, const std::string& shard) {
  for (size_t i = 0; i < mapped.size() || i < entries.size(); ++i) {
    const bool mapped_ends = i == mapped.size();
    const bool entries_end = i == entries.size();
    if (!mapped_ends && !entries_end && mapped[i] == entries[i].tensor.name) continue;
    if (entries_end || (!mapped_ends && mapped[i] < entries[i].tensor.name)) {
      return absl::InvalidArgumentError(absl::StrCat("weight_map puts tensor '", mapped[i],
                                                     "' into ", shard, ", which does not hold it"));
    }
    return absl::InvalidArgumentError(absl::StrCat("weight_map does not put tensor '",
                                                   entries[i].tensor.name, "' into ", shard,
                                                   ", which holds it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TensorSource>> OpenShards(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kIndexName);
  SKEIN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxIndexBytes));
  const absl::StatusOr<ShardMap> map = ParseIndex(text);
  if (!map.ok()) return Annotate(map.status(), path);
  std::vector<Shard> shards;
  for (const auto& [name, mapped] : *map) {
    absl::StatusOr<Shard> shard = OpenShard(absl::StrCat(folder, "/", name));
    if (!shard.ok()) return Annotate(shard.status(), absl::StrCat("shard named by ", path));
    SKEIN_RETURN_IF_ERROR(Annotate(CheckShard(mapped, shard->entries, name), path));
    shards.push_back(*std::move(shard));
  }
  return std::make_unique<SafetensorsSource>(folder, std::move(shards));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorSource>> OpenSafetensors(const std::string& folder_or_file) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder_or_file, ignored)) return OpenSingle(folder_or_file);
  const std::string single = absl::StrCat(folder_or_file, "/", kSingleName);
  if (std::filesystem::exists(single, ignored)) return OpenSingle(single);
  if (std::filesystem::exists(absl::StrCat(folder_or_file, "/", kIndexName), ignored)) {
    return OpenShards(folder_or_file);
  }
  return absl::NotFoundError(
      absl::StrCat(folder_or_file, ": holds neither ", kSingleName, " nor ", kIndexName));
}

}  // namespace skein::model

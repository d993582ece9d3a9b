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
#include "model/format/file_source.h"
#include "model/format/safetensors_header.h"

namespace skein::model {
namespace {

constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
// The index of a model of 200,000 tensors has some 20 MB.
constexpr int64_t kMaxIndexBytes = 64 << 20;

absl::StatusOr<std::vector<TensorEntry>> ReadHeader(const File& file) {
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

absl::StatusOr<TensorFile> OpenShard(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(File file, File::Open(path));
  absl::StatusOr<std::vector<TensorEntry>> entries = ReadHeader(file);
  if (!entries.ok()) return Annotate(entries.status(), path);
  return TensorFile{std::move(file), *std::move(entries)};
}

absl::StatusOr<std::unique_ptr<TensorSource>> OpenSingle(const std::string& path) {
  std::vector<TensorFile> shards;
  SKEIN_ASSIGN_OR_RETURN(TensorFile shard, OpenShard(path));
  shards.push_back(std::move(shard));
  return MakeFileSource(path, std::move(shards));
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
                        const std::vector<TensorEntry>& entries, const std::string& shard) {
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
  std::vector<TensorFile> shards;
  for (const auto& [name, mapped] : *map) {
    absl::StatusOr<TensorFile> shard = OpenShard(absl::StrCat(folder, "/", name));
    if (!shard.ok()) return Annotate(shard.status(), absl::StrCat("shard named by ", path));
    SKEIN_RETURN_IF_ERROR(Annotate(CheckShard(mapped, shard->entries, name), path));
    shards.push_back(*std::move(shard));
  }
  return MakeFileSource(folder, std::move(shards));
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

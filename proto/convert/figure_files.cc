#include "proto/convert/figure_files.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "proto/convert/machines_json.h"

namespace skein::convert {
namespace {

namespace fs = std::filesystem;

// FNV-1a, 64 bits: names files; the key itself stands in each.
std::string PathOf(const std::string& folder, const std::string& key) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return absl::StrCat(folder, "/", absl::StrFormat("%016x", hash), ".json");
}

}  // namespace

absl::StatusOr<topology::Topology> ReadFigures(const std::string& file) {
  SKEIN_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxTopologyBytes));
  absl::StatusOr<topology::Topology> given = TopologyFromJson(text);
  if (!given.ok()) return Annotate(given.status(), file);
  return given;
}

std::optional<topology::Topology> ReadKept(const std::string& folder, const std::string& key) {
  const absl::StatusOr<std::string> text = ReadFile(PathOf(folder, key), kMaxTopologyBytes);
  if (!text.ok()) return std::nullopt;
  absl::StatusOr<topology::Topology> kept = TopologyFromJson(*text);
  // As topologies have names.
  if (!kept.ok() || kept->name != Printable(key) || kept->hosts.size() != 1) return std::nullopt;
  return *std::move(kept);
}

absl::Status Keep(const std::string& folder, const std::string& key, topology::Topology topology) {
  topology.name = key;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return ErrnoStatus(error.value(), folder);
  const std::string path = PathOf(folder, key);
  const std::string draft = absl::StrCat(path, ".", getpid());
  SKEIN_RETURN_IF_ERROR(WriteFile(draft, TopologyToJson(topology)));
  fs::rename(draft, path, error);
  return error ? ErrnoStatus(error.value(), path) : absl::OkStatus();
}

}  // namespace skein::convert

// API keys, and the file that lists them. A key is "sk-skein-" and 256 random bits in base64url;
// the file holds its SHA-256 alone, so that who reads the file learns no key. A slow hash, as for
// passwords, would add nothing: nobody can try 2^256 keys.
//
// The file is text, a key a line; "#" begins a comment, and empty lines are fine:
//
//   # NAME  sha256:HASH, 64 hex digits  limits, each of them optional
//   alice   sha256:9f86...0a08  requests-per-minute=60 tokens-per-minute=20000 streams=4
//   bob     sha256:60303...a752  models=bard,hamlet disabled=yes
//
// requests-per-minute: that are begun in any minute. tokens-per-minute: of prompts and answers.
// streams: requests that are answered at once, in parts or not. models: the only ones that the key
// may ask. disabled=yes: the key is refused, and the name stays taken.
//
// All functions are pure, or do what they say to a file. Any thread may call them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein::serving {

using KeyHash = std::array<uint8_t, 32>;

// None: no limit.
struct KeyLimits {
  std::optional<int64_t> requests_per_minute;
  std::optional<int64_t> tokens_per_minute;
  std::optional<int64_t> streams;

  bool operator==(const KeyLimits&) const = default;
};

struct ApiKey {
  std::string name;  // of letters, digits, '-', '_', '.' and '@'; at most 64
  KeyHash hash = {};
  KeyLimits limits;
  std::vector<std::string> models;  // none: all
  bool disabled = false;

  bool operator==(const ApiKey&) const = default;
};

inline constexpr int64_t kMaxKeys = 4096;  // a request is compared with all of them
inline constexpr int64_t kMaxKeyFileBytes = 4 << 20;

// A new key, from the system's random numbers. Internal: there are none.
absl::StatusOr<std::string> NewApiKey();
KeyHash HashOfKey(std::string_view key);

// InvalidArgument where `name` is none.
absl::Status CheckKeyName(std::string_view name);

// InvalidArgument names the line and what is wrong with it; it never quotes a hash, or what may be
// a key that stands in its place.
absl::StatusOr<std::vector<ApiKey>> ParseKeys(std::string_view text);
// ReadFile's errors, or those of ParseKeys with the path before them.
absl::StatusOr<std::vector<ApiKey>> ReadKeys(const std::string& path);

// The key's line, which ParseKeys takes, without a line feed.
std::string KeyLine(const ApiKey& key);

// Adds a line for the key, or makes the file. AlreadyExists: there is one of that name.
absl::Status AddKey(const std::string& path, const ApiKey& key);
// Takes the line of that name away. NotFound: there is none.
absl::Status RemoveKey(const std::string& path, std::string_view name);
// Both leave the other lines as they are, and owner, group and mode, but nothing for others; a new
// file has mode 0600. It is replaced in one step:
// a reader sees the old keys or the new. PATH.new, which is made meanwhile, keeps others from
// changing it at the same time (AlreadyExists).

}  // namespace skein::serving

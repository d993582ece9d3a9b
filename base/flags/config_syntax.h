// The text of configuration files: a part of TOML, in which values that need no quotes may go
// without.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace skein {

// What a line "key = value" says.
struct ConfigEntry {
  std::vector<std::string> section;  // "[worker.bench]" is {"worker", "bench"}
  std::string key;
  std::vector<std::string> values;
  bool list = false;  // the value is written as [A, B]
  int line = 0;       // from 1
};

// Entries in their order. InvalidArgument with "line N: ...".
absl::StatusOr<std::vector<ConfigEntry>> ParseConfig(const std::string& text);

// The value as ParseConfig reads it.
std::string QuoteConfigValue(const std::string& value);

}  // namespace skein

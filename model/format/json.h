// JSON text from files that nobody vouches for, as a tree.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace skein::model {

struct JsonLimits {
  int max_depth = 64;
  int64_t max_values = 4 << 20;  // bounds the tree's memory to a few hundred MiB
};

// InvalidArgument, with byte position and reason, for text that is not JSON, is not UTF-8, has a
// key twice in one object, or is beyond the limits. Nothing recurses on the text's depth.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// What the JSON parser's exception says, shortened: it quotes the text that it choked on.
std::string JsonErrorText(const std::exception& error);

}  // namespace skein::model

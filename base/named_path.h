// Paths that may have names before them, as in "chat=/models/llama".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_split.h"

namespace skein {

struct NamedPath {
  std::vector<std::string> names;  // as they are written, "" where one is missing; none: no "="
  std::string path;
};

// Takes "PATH", "NAME=PATH" and "NAME,NAME=PATH". A "=" behind a slash is the path's.
inline NamedPath ParseNamedPath(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || text.find('/') < equals) return {{}, std::string(text)};
  const std::vector<std::string> names = absl::StrSplit(std::string(text.substr(0, equals)), ',');
  return {names, std::string(text.substr(equals + 1))};
}

}  // namespace skein

// Where a program may keep what it can find out again.
#pragma once

#include <string>

namespace skein {

// By the XDG Base Directory Specification, of the values of XDG_CACHE_HOME and HOME, which may be
// null: $XDG_CACHE_HOME/skein, or $HOME/.cache/skein; empty where neither is an absolute path.
inline std::string CacheFolder(const char* xdg_cache_home, const char* home) {
  const auto absolute = [](const char* path) { return path != nullptr && *path == '/'; };
  if (absolute(xdg_cache_home)) return std::string(xdg_cache_home) + "/skein";
  return absolute(home) ? std::string(home) + "/.cache/skein" : "";
}

}  // namespace skein

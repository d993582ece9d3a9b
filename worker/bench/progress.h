// Where a benchmark is, on a terminal.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

namespace skein::worker {

// Replaces the line that stands there; nothing where standard error is no terminal.
inline void ShowProgress(const std::string& what) {
  if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\r\033[K%s", what.c_str());
}

}  // namespace skein::worker

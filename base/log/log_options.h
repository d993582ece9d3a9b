// How a program logs, as its flags say it.
#pragma once

#include <cstdint>
#include <string>

namespace skein {

struct LogOptions {
  enum class Format : uint8_t { kText, kJson };

  std::string level = "info";  // trace, debug, info, warning, error or off
  Format format = Format::kText;
  std::string file;                        // "": standard error
  int64_t max_bytes = int64_t{100} << 20;  // of `file`; one that would be larger is put by
  int files = 5;                           // that are kept, `file` included
};

}  // namespace skein

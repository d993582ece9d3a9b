// Ids of responses, by which clients tell them apart.
#pragma once

#include <random>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace skein::coordinator {

// `prefix` and 96 random bits. Any thread.
inline std::string NewResponseId(std::string_view prefix) {
  thread_local std::random_device random;
  std::string id(prefix);
  for (int i = 0; i < 3; ++i) absl::StrAppend(&id, absl::Hex(random(), absl::kZeroPad8));
  return id;
}

// What NewResponseId has put behind the prefix.
inline std::string RandomOfId(std::string_view id) {
  return std::string(id.substr(id.find_last_of("-_") + 1));
}

}  // namespace skein::coordinator

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

// For logs: the prefix and the first digits. Who knows all of an id may read the answer, where it
// is kept.
inline std::string LoggedId(std::string_view id) {
  constexpr size_t kRandom = 24, kLogged = 8;
  const size_t prefix = id.find_last_of("-_") + 1;
  return std::string(id.size() - prefix < kRandom ? id : id.substr(0, prefix + kLogged));
}

// What NewResponseId has put behind the prefix.
inline std::string RandomOfId(std::string_view id) {
  return std::string(id.substr(id.find_last_of("-_") + 1));
}

}  // namespace skein::coordinator

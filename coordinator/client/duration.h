// Durations as flags.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace skein::client {

// For CLI11's check(): what is wrong with `text`, or nothing.
inline std::string CheckDuration(const std::string& text) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration >= absl::ZeroDuration()) return "";
  return absl::StrCat("'", text, "' is not a duration like 30s, 500ms or 1m30s");
}

// Of a checked text; "" is zero.
inline absl::Duration ToDuration(const std::string& text) {
  absl::Duration duration;
  absl::ParseDuration(text, &duration);
  return duration;
}

}  // namespace skein::client

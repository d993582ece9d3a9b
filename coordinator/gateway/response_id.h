// Ids of responses, by which clients tell them apart.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace skein::coordinator {

// `prefix` and 96 random bits. Any thread.
inline std::string NewResponseId(std::string_view prefix) {
  thread_local std::mt19937_64 random(std::random_device{}());
  return absl::StrCat(std::string(prefix), absl::Hex(random(), absl::kZeroPad16),
                      absl::Hex(static_cast<uint32_t>(random()), absl::kZeroPad8));
}

}  // namespace skein::coordinator

// The version of Skein. Coordinator and workers refuse each other when it differs.
#pragma once

#include <string_view>

namespace skein {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace skein

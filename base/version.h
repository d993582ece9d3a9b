// The version of Skein, equal on all ranks of a job. What coordinators, jobs and clients of unlike
// versions say to each other: docs/protocol.md.
#pragma once

#include <string_view>

namespace skein {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace skein

// Computes SHA-256, so that secrets need not be kept.
#pragma once

#include <string>
#include <string_view>

namespace skein::coordinator {

// Returns 32 bytes.
std::string Sha256(std::string_view data);

}  // namespace skein::coordinator

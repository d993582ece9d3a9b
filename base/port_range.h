// Ports that a firewall lets through, as flags name them.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace skein {

struct PortRange {
  int first = 0;
  int last = 0;  // included

  int size() const { return last - first + 1; }
};
// Parses "41000-41099". InvalidArgument says what is wanted.
absl::StatusOr<PortRange> ParsePortRange(const std::string& text);

}  // namespace skein

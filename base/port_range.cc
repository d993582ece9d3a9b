#include "base/port_range.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein {
namespace {

constexpr int kLeastPort = 1024;

}  // namespace

absl::StatusOr<PortRange> ParsePortRange(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '-');
  PortRange range;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &range.first) &&
      absl::SimpleAtoi(parts[1], &range.last) && range.first >= kLeastPort &&
      range.last >= range.first && range.last <= 65535) {
    return range;
  }
  return absl::InvalidArgumentError(absl::StrCat("must be FIRST-LAST, from ", kLeastPort,
                                                 " to 65535, like 41000-41099, not '", text, "'"));
}

}  // namespace skein

#include "base/flags/parse_device_kind.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skein {

absl::StatusOr<DeviceKind> ParseDeviceKind(const std::string& text) {
  for (const DeviceKind kind : kDeviceKinds) {
    if (text == DeviceKindName(kind)) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat("must be cpu or cuda, not '", text, "'"));
}

}  // namespace skein

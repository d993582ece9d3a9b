#include "base/status_util.h"

#include "absl/strings/str_cat.h"

namespace skein {
namespace {

absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(ToAbsl(context), ": ", status.message()));
}

absl::Status ErrnoStatus(int error_number, std::string_view what) {
  return absl::ErrnoToStatus(error_number, ToAbsl(what));
}

}  // namespace skein

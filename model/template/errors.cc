#include "model/template/errors.h"

#include "absl/strings/cord.h"

namespace skein::model {
namespace {

constexpr char kLocated[] = "skein/located";

}  // namespace

absl::Status Locate(const absl::Status& status, Position at) {
  if (status.ok() || status.GetPayload(kLocated)) return status;
  return AsRaised(absl::Status(status.code(), absl::StrCat("line ", at.line, ", column ", at.column,
                                                           ": ", status.message())));
}

absl::Status AsRaised(absl::Status status) {
  status.SetPayload(kLocated, absl::Cord());
  return status;
}

absl::Status WithoutMarks(absl::Status status) {
  status.ErasePayload(kLocated);
  return status;
}

}  // namespace skein::model

// How checks say what is wrong.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skein::kernels {

// InvalidArgument of what `args` say behind each other.
template <typename... Args>
absl::Status Invalid(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

}  // namespace skein::kernels

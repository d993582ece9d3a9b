// MPI's error codes as absl::Status. Included by this folder's .cc files only.
#pragma once

#include <mpi.h>

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skein::comm {

// Internal, quoting the expression that failed and MPI's own words.
inline absl::Status MpiStatus(int code, std::string_view expression) {
  if (code == MPI_SUCCESS) return absl::OkStatus();
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return absl::InternalError(
      absl::StrCat(std::string(expression), " failed with ", std::string(text, length)));
}

}  // namespace skein::comm

#define SKEIN_RETURN_IF_MPI_ERROR(expr) \
  SKEIN_RETURN_IF_ERROR(::skein::comm::MpiStatus((expr), #expr))

// Early returns for absl::Status and absl::StatusOr.
//
//   SKEIN_RETURN_IF_ERROR(DoIt());
//   SKEIN_ASSIGN_OR_RETURN(auto file, Open(path));
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define SKEIN_STATUS_CONCAT_INNER(a, b) a##b
#define SKEIN_STATUS_CONCAT(a, b) SKEIN_STATUS_CONCAT_INNER(a, b)

#define SKEIN_RETURN_IF_ERROR(expr)                                                  \
  do {                                                                               \
    if (absl::Status skein_status = (expr); !skein_status.ok()) return skein_status; \
  } while (false)

#define SKEIN_ASSIGN_OR_RETURN(lhs, expr) \
  SKEIN_ASSIGN_OR_RETURN_IMPL(SKEIN_STATUS_CONCAT(skein_result_, __LINE__), lhs, expr)

#define SKEIN_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                \
  if (!result.ok()) return std::move(result).status(); \
  lhs = *std::move(result)

// gMock matchers for absl::Status and absl::StatusOr.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

// Code and a matcher of the message.
MATCHER_P2(StatusIs, code, message_matcher, "") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         ::testing::ExplainMatchResult(message_matcher, std::string(StatusOf(arg).message()),
                                       result_listener);
}

}  // namespace skein

#define SKEIN_EXPECT_OK(expr) EXPECT_THAT((expr), ::skein::IsOk())
#define SKEIN_ASSERT_OK(expr) ASSERT_THAT((expr), ::skein::IsOk())
// Assigns the value of a StatusOr or fails the test.
#define SKEIN_ASSERT_OK_AND_ASSIGN(lhs, expr) \
  SKEIN_ASSERT_OK_AND_ASSIGN_IMPL(SKEIN_TEST_CONCAT(skein_result_, __LINE__), lhs, expr)
#define SKEIN_TEST_CONCAT_INNER(a, b) a##b
#define SKEIN_TEST_CONCAT(a, b) SKEIN_TEST_CONCAT_INNER(a, b)
#define SKEIN_ASSERT_OK_AND_ASSIGN_IMPL(result, lhs, expr) \
  auto result = (expr);                                    \
  ASSERT_THAT(result, ::skein::IsOk());                    \
  lhs = *std::move(result)

// Loads as people write them down: a file with the lengths of requests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/planner/planner.h"

namespace skein::plan {

// Of a request, in tokens.
struct Lengths {
  int64_t prompt = 0;
  int64_t answer = 0;

  friend bool operator==(const Lengths&, const Lengths&) = default;
};

// "PROMPT,ANSWER" tokens a line, 1 to 2^30; empty lines are skipped. InvalidArgument names the
// line.
absl::StatusOr<std::vector<Lengths>> ParseLengths(std::string_view csv);
// Those of a file, or a pipe; its errors, too, which name it.
absl::StatusOr<std::vector<Lengths>> ReadLengths(const std::string& path);

// Plans for requests like those of a file: for their means, in contexts that hold the longest.
// Errors as of ReadLengths; InvalidArgument where the longest exceeds a context_length that is set.
absl::Status PlanForLengths(const std::string& path, Constraints& constraints);

}  // namespace skein::plan

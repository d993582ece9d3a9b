// What `worker bench` prints.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::client {

// The seconds of each row of the JSON that `worker bench BENCH --json=-` prints behind its table:
// lines from "{" to "}". Libraries may have said something before and after. Internal where there
// are not as many `rows`, each with a time.
absl::StatusOr<std::vector<double>> SecondsOfRows(std::string_view bench, std::string_view output,
                                                  size_t rows);

}  // namespace skein::client

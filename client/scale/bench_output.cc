#include "client/scale/bench_output.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/json/json.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace skein::client {

absl::StatusOr<std::vector<double>> SecondsOfRows(std::string_view bench, std::string_view output,
                                                  size_t rows) {
  const absl::Status other =
      absl::InternalError(absl::StrCat("`worker bench ", std::string(bench), "` did not print the ",
                                       rows, " rows that it was asked for"));
  size_t begin = 0;
  while (begin != std::string_view::npos && !output.substr(begin).starts_with("{\n")) {
    begin = output.find('\n', begin);
    if (begin != std::string_view::npos) ++begin;
  }
  const size_t end = output.rfind("\n}\n");
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return other;
  SKEIN_ASSIGN_OR_RETURN(const nlohmann::json report,
                         ParseJson(output.substr(begin, end + 2 - begin)));
  const auto all = report.find("rows");
  if (all == report.end() || !all->is_array() || all->size() != rows) return other;
  std::vector<double> seconds;
  for (const nlohmann::json& row : *all) {
    const auto time = row.is_object() ? row.find("seconds") : row.end();
    if (time == row.end() || !time->is_number() || !(time->get<double>() > 0)) return other;
    seconds.push_back(time->get<double>());
  }
  return seconds;
}

}  // namespace skein::client

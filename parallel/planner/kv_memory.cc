#include "parallel/planner/kv_memory.h"

#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::plan {
namespace {

constexpr std::pair<std::string_view, int64_t> kUnits[] = {{"B", 1},
                                                           {"KiB", int64_t{1} << 10},
                                                           {"MiB", int64_t{1} << 20},
                                                           {"GiB", int64_t{1} << 30},
                                                           {"TiB", int64_t{1} << 40}};
constexpr auto kMaxBytes = static_cast<double>(kMaxRankBytes);

// A number and what follows it. The number is NaN where the text begins with none.
std::pair<double, std::string_view> SplitNumber(std::string_view text) {
  double number = NAN;
  // Digits only: from_chars would take "inf" and "-1", too.
  if (text.empty() || text[0] < '0' || text[0] > '9') return {number, text};
  const char* begin = text.data();
  const char* end = begin + text.size();
  const auto [rest, error] = std::from_chars(begin, end, number, std::chars_format::fixed);
  if (error != std::errc()) return {NAN, text};
  return {number, std::string_view(rest, end - rest)};
}

absl::StatusOr<int64_t> ReadBytes(double number, std::string_view unit) {
  for (const auto& [name, size] : kUnits) {
    if (name != unit) continue;
    const double product = number * static_cast<double>(size);
    if (product >= 1 && product <= kMaxBytes) return static_cast<int64_t>(product);
    return absl::InvalidArgumentError("so many bytes cannot be");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unit \"", std::string(unit), "\" is not one of B, KiB, MiB, GiB and TiB"));
}

absl::StatusOr<KvMemory> ReadKvMemory(std::string_view text) {
  const auto [number, unit] = SplitNumber(text);
  if (std::isnan(number)) return absl::InvalidArgumentError("it begins with no number");
  KvMemory memory;
  if (!unit.empty()) {
    SKEIN_ASSIGN_OR_RETURN(memory.bytes_per_rank, ReadBytes(number, unit));
  } else if (number > 0 && number <= 1) {
    memory.fraction = number;
  } else {
    return absl::InvalidArgumentError(
        "a number without a unit is a fraction, above 0 and at most 1");
  }
  return memory;
}

absl::StatusOr<int64_t> ReadSwapMemory(std::string_view text) {
  const auto [number, unit] = SplitNumber(text);
  if (std::isnan(number)) return absl::InvalidArgumentError("it begins with no number");
  if (unit.empty()) return absl::InvalidArgumentError("it has no unit");
  return ReadBytes(number, unit);
}

absl::Status Refuse(const char* what, std::string_view text, const absl::Status& why,
                    const char* examples) {
  return absl::InvalidArgumentError(absl::StrCat(
      what, " \"", std::string(text), "\": ", std::string(why.message()), "; ", examples));
}

}  // namespace

absl::StatusOr<KvMemory> ParseKvMemory(std::string_view text) {
  if (text.empty()) return KvMemory{};
  const absl::StatusOr<KvMemory> memory = ReadKvMemory(text);
  if (memory.ok()) return memory;
  return Refuse("KV memory", text, memory.status(),
                "it is a fraction of what is left, as in 0.5, or bytes per rank, as in 4GiB");
}

absl::StatusOr<int64_t> ParseSwapMemory(std::string_view text) {
  if (text.empty() || text == "0") return 0;
  const absl::StatusOr<int64_t> bytes = ReadSwapMemory(text);
  if (bytes.ok()) return bytes;
  return Refuse("swap memory", text, bytes.status(),
                "it is bytes per rank, as in 512MiB, or 0 for none");
}

}  // namespace skein::plan

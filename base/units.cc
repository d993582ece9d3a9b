#include "base/units.h"

#include <cstdlib>

#include "absl/strings/str_format.h"

namespace skein {

std::string FormatBytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (std::abs(value) >= 1024.0 && unit < 4) {
    value /= 1024.0;
    ++unit;
  }
  if (unit == 0) return absl::StrFormat("%d B", bytes);
  return absl::StrFormat("%.*f %s", unit >= 3 ? 2 : 1, value, kUnits[unit]);
}

std::string FormatBytesPerSecond(double bytes_per_s) {
  return bytes_per_s < 0.95e9 ? absl::StrFormat("%.3g MB/s", bytes_per_s / 1e6)
                              : absl::StrFormat("%.1f GB/s", bytes_per_s / 1e9);
}

std::string FormatMilliseconds(absl::Duration time) {
  const double milliseconds = absl::ToDoubleMilliseconds(time);
  return milliseconds < 999.5 ? absl::StrFormat("%.3g ms", milliseconds)
                              : absl::StrFormat("%.0f ms", milliseconds);
}

std::string FormatRate(double rate) {
  return rate < 999.95 ? absl::StrFormat("%.4g", rate) : absl::StrFormat("%.0f", rate);
}

std::string FormatCount(int64_t count, std::string_view noun) {
  return std::to_string(count).append(" ").append(noun).append(count == 1 ? "" : "s");
}

}  // namespace skein

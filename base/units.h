// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace skein {

std::string FormatBytes(int64_t bytes);  // "512 B", "1.5 KiB", "2.00 GiB"
std::string FormatBytesPerSecond(
    double bytes_per_s);  // "33.5 GB/s", "120 MB/s": decimal, as vendors do
std::string FormatMilliseconds(absl::Duration time);            // "1.27 ms", "1274 ms"
std::string FormatRate(double rate);                            // "1.234", "12345": no exponents
std::string FormatCount(int64_t count, std::string_view noun);  // "1 core", "2 cores"

}  // namespace skein

// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace skein {

std::string FormatBytes(int64_t bytes);                  // "512 B", "1.5 KiB", "2.00 GiB"
std::string FormatBytesPerSecond(double bytes_per_s);    // "33.5 GB/s" (decimal, as vendors do)

}  // namespace skein

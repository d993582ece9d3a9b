// What a rank computes on.
#pragma once

#include <cstdint>
#include <string_view>

namespace skein {

enum class DeviceKind : uint8_t { kCpu, kCuda };
inline constexpr DeviceKind kDeviceKinds[] = {DeviceKind::kCpu, DeviceKind::kCuda};

constexpr std::string_view DeviceKindName(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kCuda:
      return "cuda";
  }
  return "?";
}

}  // namespace skein

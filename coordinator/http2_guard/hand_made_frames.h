// Frames of HTTP/2, byte by byte, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "coordinator/http2_guard/http2_frames.h"

namespace skein::coordinator {

inline std::string Frame(FrameKind kind, int flags, uint32_t stream,
                         std::string_view payload = "") {
  const auto byte = [](uint64_t value, int shift) { return static_cast<char>(value >> shift); };
  const size_t size = payload.size();
  std::string frame = {
      byte(size, 16),           byte(size, 8),    byte(size, 0),    static_cast<char>(kind),
      static_cast<char>(flags), byte(stream, 24), byte(stream, 16), byte(stream, 8),
      byte(stream, 0)};
  return frame.append(payload);
}

// With which a client begins.
inline std::string Hello() {
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(FrameKind::kSettings, 0, 0);
}

inline std::string Reset(uint32_t stream, char code = 8) {
  return Frame(FrameKind::kRstStream, 0, stream, std::string(3, '\0') + code);
}

}  // namespace skein::coordinator

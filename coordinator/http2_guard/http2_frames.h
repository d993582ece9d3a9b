// HTTP/2 as far as the guard reads it (RFC 9113).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace skein::coordinator {

// With which a client begins.
inline constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
inline constexpr size_t kFrameHeaderBytes = 9;
// What every receiver takes, unless it has said that it takes more.
inline constexpr size_t kFramePayloadBytes = 16 << 10;

enum class FrameKind : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kRstStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoaway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};

// Flags of frames; what a bit means depends on the kind.
inline constexpr uint8_t kEndStream = 0x1;
inline constexpr uint8_t kAck = 0x1;
inline constexpr uint8_t kEndHeaders = 0x4;
inline constexpr uint8_t kPadded = 0x8;
inline constexpr uint8_t kHasPriority = 0x20;

enum class Http2Error : uint32_t {
  kNone = 0,
  kProtocol = 1,
  kFrameSize = 6,
  kEnhanceYourCalm = 11,
};

struct FrameHeader {
  uint32_t length = 0;  // of the payload that follows
  FrameKind kind = FrameKind::kData;
  uint8_t flags = 0;
  uint32_t stream = 0;  // 0: the connection

  bool Has(uint8_t flag) const { return (flags & flag) != 0; }
};

inline FrameHeader ParseFrameHeader(const std::array<char, kFrameHeaderBytes>& bytes) {
  const auto at = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])); };
  return {.length = at(0) << 16 | at(1) << 8 | at(2),
          .kind = static_cast<FrameKind>(at(3)),
          .flags = static_cast<uint8_t>(at(4)),
          .stream = (at(5) << 24 | at(6) << 16 | at(7) << 8 | at(8)) & 0x7fffffff};
}

inline void AppendNumber(uint32_t number, std::string& to) {
  for (const int shift : {24, 16, 8, 0}) to.push_back(static_cast<char>(number >> shift & 0xff));
}

inline void AppendFrameHeader(const FrameHeader& header, std::string& to) {
  AppendNumber(header.length << 8 | static_cast<uint32_t>(header.kind), to);
  to.push_back(static_cast<char>(header.flags));
  AppendNumber(header.stream, to);
}

}  // namespace skein::coordinator

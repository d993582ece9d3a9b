// What gRPC answers, on its way to a client: updates of windows may wait, else nothing is changed;
// who reads along learns which streams have ended. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "coordinator/http2_guard/held_updates.h"
#include "coordinator/http2_guard/http2_frames.h"
#include "coordinator/http2_guard/open_streams.h"

namespace skein::coordinator {

class ServerFrames {
 public:
  // The streams outlive it.
  explicit ServerFrames(OpenStreams* streams) : streams_(streams) {}

  // Appends to `out` what the client is to read.
  void Take(std::string_view bytes, std::string& out);
  // As ClientFrames.
  HeldUpdates& updates() { return updates_; }
  // Whether the last frame is whole: another one may be put in.
  bool between_frames() const { return header_size_ == 0; }

 private:
  void EndFrame(std::string& out);

  OpenStreams* const streams_;
  std::array<char, kFrameHeaderBytes> header_bytes_ = {};
  size_t header_size_ = 0;  // bytes of it that are there
  FrameHeader frame_;
  size_t payload_left_ = 0;
  HeldUpdates updates_;
  uint32_t ended_ = 0;     // the stream that the last frame has ended; 0: none
  bool is_error_ = false;  // the payload of RST_STREAM has another byte than zero
};

}  // namespace skein::coordinator

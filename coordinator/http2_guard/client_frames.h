// What clients send, on its way to gRPC: a header block comes out in one piece, however many frames
// it came in, and who exceeds a limit is found out before gRPC has the frame. Pure: bytes in, bytes
// out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/http2_guard/held_updates.h"
#include "coordinator/http2_guard/http2_frames.h"
#include "coordinator/http2_guard/open_streams.h"

namespace skein::coordinator {

// Of one connection.
struct ClientLimits {
  // Of one header block. gRPC takes 8 KiB of headers once they are decoded, and says so to the
  // client where there are more: that is still to reach it.
  size_t header_block_bytes = 32 << 10;
  int continuations = 16;  // frames of one header block behind its first
  size_t open_streams = 1024;
  // SETTINGS frames: so many at once, and so many a second later. gRPC's clients send some as their
  // windows grow.
  double settings_burst = 100;
  double settings_per_second = 10;
};

// Why a connection ends.
struct Violation {
  Http2Error code = Http2Error::kNone;  // as GOAWAY tells it
  std::string_view why;                 // completes "a client ..."; a literal

  explicit operator bool() const { return code != Http2Error::kNone; }
};

class ClientFrames {
 public:
  // The streams outlive it.
  ClientFrames(const ClientLimits& limits, OpenStreams* streams);

  struct Taken {
    size_t bytes = 0;  // of those that were given
    Violation violation;
  };
  // Appends to `out` what gRPC is to read. Stops behind a frame that resets a stream: as long as
  // one is unpaid, the rest waits with the caller. Nothing comes out before the preface and the
  // header of the first SETTINGS are there. Not to be called again after a violation.
  Taken Take(std::string_view bytes, absl::Time now, std::string& out);
  // Updates of windows, which Take may hold back, for HeldUpdates::kLongest at most.
  HeldUpdates& updates() { return updates_; }
  bool in_header_block() const { return block_header_.stream != 0; }

 private:
  enum class Fate { kPass, kDrop, kBlock, kHold };  // of a frame's payload

  Violation BeginFrame(absl::Time now, std::string& out);
  Violation BeginHeaders();
  Violation BeginContinuation();
  Violation CountSettings(absl::Time now);
  // The whole payload is there.
  Violation EndFrame(std::string& out);
  // Takes padding and priority away from the first fragment.
  Violation Strip();
  void EmitBlock(std::string& out);

  const ClientLimits limits_;
  OpenStreams* const streams_;
  size_t preface_ = 0;  // bytes of it that are there
  bool begun_ = false;  // the first frame is there
  std::array<char, kFrameHeaderBytes> header_bytes_ = {};
  size_t header_size_ = 0;  // bytes of it that are there
  FrameHeader frame_;
  size_t payload_left_ = 0;
  Fate fate_ = Fate::kPass;

  HeldUpdates updates_;
  std::string block_;         // the header block that is not whole
  FrameHeader block_header_;  // of its first frame; stream 0: there is no block
  int continuations_ = 0;

  double settings_left_;
  absl::Time settings_at_ = absl::InfinitePast();
};

}  // namespace skein::coordinator

#include "coordinator/http2_guard/server_frames.h"

#include <utility>

namespace skein::coordinator {

void ServerFrames::Take(std::string_view bytes, std::string& out) {
  while (true) {
    if (header_size_ < kFrameHeaderBytes) {
      const size_t part =
          bytes.copy(header_bytes_.data() + header_size_, kFrameHeaderBytes - header_size_);
      header_size_ += part;
      bytes.remove_prefix(part);
      if (header_size_ < kFrameHeaderBytes) return;
      frame_ = ParseFrameHeader(header_bytes_);
      payload_left_ = frame_.length;
      is_error_ = false;
      const std::string_view header(header_bytes_.data(), kFrameHeaderBytes);
      if (frame_.kind == FrameKind::kWindowUpdate) {
        updates_.Hold(header);
      } else {
        updates_.Release(out);
        out.append(header);
      }
    }
    const std::string_view part = bytes.substr(0, payload_left_);
    if (frame_.kind == FrameKind::kRstStream) {
      is_error_ = is_error_ || part.find_first_not_of('\0') != std::string_view::npos;
    }
    if (frame_.kind == FrameKind::kSettings) updates_.ReadSettings(part);
    if (frame_.kind == FrameKind::kWindowUpdate) {
      updates_.Hold(part);
    } else {
      out.append(part);
    }
    payload_left_ -= part.size();
    bytes.remove_prefix(part.size());
    if (payload_left_ > 0) return;
    header_size_ = 0;
    EndFrame(out);
  }
}

void ServerFrames::EndFrame(std::string& out) {
  if (frame_.kind == FrameKind::kWindowUpdate) {
    if (updates_.EndFrame()) updates_.Release(out);
    return;
  }
  const uint32_t ended = std::exchange(ended_, 0);
  if (frame_.kind == FrameKind::kRstStream && frame_.stream == ended) {
    // So gRPC ends a stream before its time, as when the client's deadline passes.
    streams_->Owe();
  } else if (frame_.kind == FrameKind::kRstStream) {
    // A client can make gRPC reset its streams, too, by frames that must not be.
    is_error_ ? streams_->Reset(frame_.stream) : streams_->End(frame_.stream);
  } else if ((frame_.kind == FrameKind::kHeaders || frame_.kind == FrameKind::kData) &&
             frame_.Has(kEndStream)) {
    streams_->End(frame_.stream);
    ended_ = frame_.stream;
  }
}

}  // namespace skein::coordinator

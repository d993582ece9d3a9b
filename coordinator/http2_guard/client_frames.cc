#include "coordinator/http2_guard/client_frames.h"

#include <algorithm>
#include <utility>

namespace skein::coordinator {
namespace {

constexpr size_t kPriorityBytes = 5;
constexpr size_t kMostPadding = 256;     // its length, and what it tells of
constexpr size_t kSmallBlock = 4 << 10;  // more is not kept for the next one

Violation Protocol(std::string_view why) { return {Http2Error::kProtocol, why}; }
Violation Calm(std::string_view why) { return {Http2Error::kEnhanceYourCalm, why}; }
Violation FrameSize() {
  return {Http2Error::kFrameSize, "sent a frame of a length that its kind cannot have"};
}

// Whether a frame of this kind may be so long; gRPC looks at DATA itself.
bool LengthFits(const FrameHeader& frame) {
  switch (frame.kind) {
    case FrameKind::kRstStream:
    case FrameKind::kWindowUpdate:
      return frame.length == 4;
    case FrameKind::kPing:
      return frame.length == 8;
    case FrameKind::kData:
    case FrameKind::kHeaders:
    case FrameKind::kContinuation:
      return true;
    default:
      return frame.length <= kFramePayloadBytes;
  }
}

}  // namespace

ClientFrames::ClientFrames(const ClientLimits& limits, OpenStreams* streams)
    : limits_(limits), streams_(streams), settings_left_(limits.settings_burst) {}

ClientFrames::Taken ClientFrames::Take(std::string_view bytes, absl::Time now, std::string& out) {
  const size_t given = bytes.size();
  const auto taken = [&](Violation violation = {}) {
    return Taken{given - bytes.size(), violation};
  };
  while (preface_ < kHttp2Preface.size()) {
    if (bytes.empty()) return taken();
    if (bytes[0] != kHttp2Preface[preface_]) return taken(Protocol("does not speak HTTP/2"));
    ++preface_;
    bytes.remove_prefix(1);
  }
  while (streams_->unpaid_resets() <= 0) {
    if (header_size_ < kFrameHeaderBytes) {
      const size_t part =
          bytes.copy(header_bytes_.data() + header_size_, kFrameHeaderBytes - header_size_);
      header_size_ += part;
      bytes.remove_prefix(part);
      if (header_size_ < kFrameHeaderBytes) break;
      frame_ = ParseFrameHeader(header_bytes_);
      if (const Violation violation = BeginFrame(now, out)) return taken(violation);
      payload_left_ = frame_.length;
    }
    const std::string_view part = bytes.substr(0, payload_left_);
    if (fate_ == Fate::kPass) out.append(part);
    if (fate_ == Fate::kBlock) block_.append(part);
    if (fate_ == Fate::kHold) updates_.Hold(part);
    if (frame_.kind == FrameKind::kSettings) updates_.ReadSettings(part);
    payload_left_ -= part.size();
    bytes.remove_prefix(part.size());
    if (payload_left_ > 0) break;
    header_size_ = 0;
    if (const Violation violation = EndFrame(out)) return taken(violation);
  }
  return taken();
}

Violation ClientFrames::BeginFrame(absl::Time now, std::string& out) {
  if (!std::exchange(begun_, true)) {
    if (frame_.kind != FrameKind::kSettings || frame_.Has(kAck)) {
      return Protocol("does not begin with SETTINGS");
    }
    out.append(kHttp2Preface);
  }
  if (!LengthFits(frame_)) return FrameSize();
  if (block_header_.stream != 0 && frame_.kind != FrameKind::kContinuation) {
    return Protocol("sent another frame within a header block");
  }
  fate_ = Fate::kPass;
  Violation violation;
  switch (frame_.kind) {
    case FrameKind::kHeaders:
      violation = BeginHeaders();
      break;
    case FrameKind::kContinuation:
      violation = BeginContinuation();
      break;
    case FrameKind::kPushPromise:
      return Protocol("sent PUSH_PROMISE");
    case FrameKind::kSettings:
      violation = CountSettings(now);
      break;
    case FrameKind::kData:
      // Says nothing, and costs nothing to send.
      if (frame_.length == 0 && !frame_.Has(kEndStream)) fate_ = Fate::kDrop;
      break;
    case FrameKind::kWindowUpdate:
      fate_ = Fate::kHold;
      break;
    case FrameKind::kRstStream:
    case FrameKind::kPing:
    case FrameKind::kGoaway:
      break;
    default:
      fate_ = Fate::kDrop;  // PRIORITY, and what nobody knows: gRPC would read over it
  }
  if (violation) return violation;
  const std::string_view header(header_bytes_.data(), kFrameHeaderBytes);
  if (fate_ == Fate::kHold) updates_.Hold(header);
  if (fate_ == Fate::kPass) {
    updates_.Release(out);
    out.append(header);
  }
  return {};
}

Violation ClientFrames::BeginHeaders() {
  if (frame_.stream % 2 == 0) return Protocol("sent HEADERS for a stream that cannot be its own");
  if (frame_.stream > streams_->last() && streams_->size() >= limits_.open_streams) {
    return Calm("has more streams open at once than it may");
  }
  block_header_ = frame_;
  continuations_ = 0;
  return BeginContinuation();
}

Violation ClientFrames::BeginContinuation() {
  if (block_header_.stream == 0 || frame_.stream != block_header_.stream) {
    return Protocol("sent CONTINUATION of no header block");
  }
  const size_t around = frame_.kind == FrameKind::kHeaders ? kMostPadding + kPriorityBytes : 0;
  if (block_.size() + frame_.length > limits_.header_block_bytes + around ||
      continuations_ > limits_.continuations) {
    return Calm("sent a header block that is too long");
  }
  fate_ = Fate::kBlock;
  ++continuations_;
  return {};
}

Violation ClientFrames::CountSettings(absl::Time now) {
  if (frame_.Has(kAck)) return {};
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(now - settings_at_));
  settings_left_ =
      std::min(limits_.settings_burst, settings_left_ + seconds * limits_.settings_per_second);
  settings_at_ = now;
  if (settings_left_ < 1) return Calm("sent SETTINGS too often");
  --settings_left_;
  return {};
}

Violation ClientFrames::EndFrame(std::string& out) {
  if (frame_.kind == FrameKind::kRstStream) streams_->Reset(frame_.stream);
  if (fate_ == Fate::kHold && updates_.EndFrame()) updates_.Release(out);
  if (fate_ != Fate::kBlock) return {};
  if (frame_.kind == FrameKind::kHeaders) {
    if (const Violation violation = Strip()) return violation;
  }
  if (frame_.Has(kEndHeaders)) EmitBlock(out);
  return {};
}

Violation ClientFrames::Strip() {
  size_t front = 0;
  size_t padding = 0;
  if (frame_.Has(kPadded)) {
    if (block_.empty()) return FrameSize();
    padding = static_cast<uint8_t>(block_[0]);
    front = 1;
  }
  if (frame_.Has(kHasPriority)) front += kPriorityBytes;
  if (front + padding > block_.size())
    return Protocol("sent more padding than its frame has room for");
  block_.erase(block_.size() - padding);
  block_.erase(0, front);
  return {};
}

void ClientFrames::EmitBlock(std::string& out) {
  updates_.Release(out);
  std::string_view rest = block_;
  FrameHeader header = block_header_;
  header.flags &= kEndStream;
  do {
    const std::string_view part = rest.substr(0, kFramePayloadBytes);
    rest.remove_prefix(part.size());
    header.length = static_cast<uint32_t>(part.size());
    if (rest.empty()) header.flags |= kEndHeaders;
    AppendFrameHeader(header, out);
    out.append(part);
    header.kind = FrameKind::kContinuation;
    header.flags = 0;
  } while (!rest.empty());
  if (block_header_.stream > streams_->last()) streams_->Begin(block_header_.stream);
  block_header_ = {};
  block_.clear();
  if (block_.capacity() > kSmallBlock) block_.shrink_to_fit();
}

}  // namespace skein::coordinator

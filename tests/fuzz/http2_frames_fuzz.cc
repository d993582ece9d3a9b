// Takes any bytes for what a client sends. However they are cut, the same comes out; and what comes
// out is frames whose header blocks are whole, bounded, and without padding.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "coordinator/http2_guard/client_frames.h"
#include "coordinator/http2_guard/http2_frames.h"
#include "coordinator/http2_guard/open_streams.h"
#include "coordinator/http2_guard/server_frames.h"

namespace {

using skein::coordinator::ClientFrames;
using skein::coordinator::FrameHeader;
using skein::coordinator::FrameKind;

struct Result {
  std::string out;
  skein::coordinator::Http2Error code = {};
  size_t open = 0;
};

Result Take(std::string_view bytes, size_t part_size) {
  Result result;
  skein::coordinator::OpenStreams streams;
  ClientFrames frames({.open_streams = 10, .settings_burst = 5}, &streams);
  while (!bytes.empty()) {
    std::string_view part = bytes.substr(0, part_size);
    bytes.remove_prefix(part.size());
    while (true) {
      const ClientFrames::Taken taken = frames.Take(part, absl::UnixEpoch(), result.out);
      part.remove_prefix(taken.bytes);
      result.code = taken.violation.code;
      if (taken.violation) return result;
      if (streams.unpaid_resets() == 0) break;
      streams.PayForReset();
    }
    if (!part.empty()) std::abort();
  }
  frames.updates().Release(result.out);
  result.open = streams.size();
  return result;
}

void Check(std::string_view out) {
  if (out.empty()) return;
  if (!out.starts_with(skein::coordinator::kHttp2Preface)) std::abort();
  out.remove_prefix(skein::coordinator::kHttp2Preface.size());
  uint32_t block = 0;  // the stream whose header block is not whole
  size_t size = 0;
  while (out.size() >= skein::coordinator::kFrameHeaderBytes) {
    std::array<char, skein::coordinator::kFrameHeaderBytes> bytes = {};
    std::memcpy(bytes.data(), out.data(), bytes.size());
    const FrameHeader header = skein::coordinator::ParseFrameHeader(bytes);
    const bool continues = header.kind == FrameKind::kContinuation;
    if ((block != 0) != continues || (continues && header.stream != block)) std::abort();
    if (continues || header.kind == FrameKind::kHeaders) {
      size = continues ? size + header.length : header.length;
      if (header.length > 16384 || size > 33100) std::abort();
      if (header.Has(skein::coordinator::kPadded | skein::coordinator::kHasPriority)) std::abort();
      block = header.Has(skein::coordinator::kEndHeaders) ? 0 : header.stream;
    }
    if (header.kind == FrameKind::kPriority) std::abort();
    out.remove_prefix(std::min(out.size(), bytes.size() + header.length));
  }
  if (block != 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result whole = Take(bytes, bytes.size() + 1);
  for (const size_t part_size : {size_t{1}, size_t{7}}) {
    const Result parts = Take(bytes, part_size);
    if (parts.out != whole.out || parts.code != whole.code || parts.open != whole.open)
      std::abort();
  }
  Check(whole.out);
  // The other direction changes nothing.
  skein::coordinator::OpenStreams streams;
  skein::coordinator::ServerFrames answers(&streams);
  std::string out;
  answers.Take(bytes.substr(0, size / 2), out);
  answers.Take(bytes.substr(size / 2), out);
  answers.updates().Release(out);
  // All but a header that is not whole.
  if (out != bytes.substr(0, out.size()) || bytes.size() - out.size() >= 9) std::abort();
  return 0;
}

#include "coordinator/service/trace_id.h"

#include <cstddef>
#include <string_view>

namespace skein::coordinator {
namespace {

// "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
constexpr size_t kTraceAt = 3, kTraceSize = 32;
constexpr size_t kParentAt = 36, kParentSize = 16;
constexpr size_t kFlagsAt = 53;
constexpr size_t kSize = 55;

// In lower case alone.
bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
bool IsId(std::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

std::string_view TraceIdOf(std::string_view traceparent) {
  if (traceparent.size() < kSize) return "";
  const std::string_view version = traceparent.substr(0, 2);
  if (!IsHex(version) || version == "ff") return "";
  if (traceparent.size() > kSize && (version == "00" || traceparent[kSize] != '-')) return "";
  for (const size_t dash : {kTraceAt - 1, kParentAt - 1, kFlagsAt - 1}) {
    if (traceparent[dash] != '-') return "";
  }
  const std::string_view trace = traceparent.substr(kTraceAt, kTraceSize);
  const bool valid = IsId(trace) && IsId(traceparent.substr(kParentAt, kParentSize)) &&
                     IsHex(traceparent.substr(kFlagsAt, 2));
  return valid ? trace : "";
}

}  // namespace skein::coordinator

// Which versions of their protocol (proto/) a coordinator and a rank speak, and which of them they
// speak with each other.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace skein::attach {

// All from `min` to `max`.
struct ProtocolRange {
  int32_t min = 0;
  int32_t max = 0;  // 0: none was told, as before there were versions

  bool operator==(const ProtocolRange&) const = default;
};

// This program's. docs/protocol.md says when they change.
inline constexpr ProtocolRange kProtocols = {1, 1};

struct Speaker {
  std::string name;     // "rank 3 on node7 (pid 4711)"
  std::string version;  // of its program
  ProtocolRange protocols;
};

// The highest that both speak. FailedPrecondition where there is none: what both speak and are, and
// which one to replace.
absl::StatusOr<int32_t> AgreeOnProtocol(const Speaker& rank, const Speaker& coordinator);

}  // namespace skein::attach

#include "parallel/attach/protocol.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skein::attach {
namespace {

std::string Describe(const Speaker& speaker) {
  const auto [min, max] = speaker.protocols;
  const std::string version = speaker.version.empty() ? "older" : speaker.version;
  return absl::StrCat(speaker.name, " (Skein ", version, ") ",
                      max == 0 ? "tells of no version of the protocol"
                      : min == max
                          ? absl::StrCat("speaks version ", max, " of the protocol")
                          : absl::StrCat("speaks versions ", min, " to ", max, " of the protocol"));
}

}  // namespace

absl::StatusOr<int32_t> AgreeOnProtocol(const Speaker& rank, const Speaker& coordinator) {
  const ProtocolRange& theirs = rank.protocols;
  const ProtocolRange& ours = coordinator.protocols;
  const int32_t highest = std::min(theirs.max, ours.max);
  if (highest >= std::max({theirs.min, ours.min, 1})) return highest;
  return absl::FailedPreconditionError(absl::StrCat(
      Describe(rank), ", ", Describe(coordinator), ", so that they have none in common; start ",
      theirs.max < ours.max ? "the job's workers" : "the coordinator",
      " from a newer Skein, of the other's version or a neighbouring one"));
}

}  // namespace skein::attach

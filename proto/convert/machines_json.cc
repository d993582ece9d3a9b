#include "proto/convert/machines_json.h"

#include <google/protobuf/util/json_util.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/json/json.h"
#include "base/json/line_of_path.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "proto/convert/machines.h"

namespace skein::convert {
namespace {

constexpr int kMaxDepth = 16;  // of a topology that is written: 9

// `error` begins with the path of what it is of.
absl::Status WithLine(std::string_view json, const std::string& error) {
  return absl::InvalidArgumentError(absl::StrCat("line ", LineOfPath(json, error), ": ", error));
}

}  // namespace

std::string TopologyToJson(const topology::Topology& topology) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.add_whitespace = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(ToProto(topology), &json, options);
  return status.ok() ? json : "{}";  // it fails for strings alone that are not UTF-8
}

absl::StatusOr<topology::Topology> TopologyFromJson(std::string_view json) {
  if (json.size() > kMaxTopologyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kMaxTopologyBytes, " bytes are no topology"));
  }
  // Protobuf's own parser tells no line, takes the last of two equal keys, and follows any depth.
  SKEIN_RETURN_IF_ERROR(ParseJson(json, {.max_depth = kMaxDepth}).status());
  topology::v1::Topology wire;
  const auto status = google::protobuf::util::JsonStringToMessage(std::string(json), &wire);
  if (!status.ok()) return WithLine(json, Printable(std::string(status.message())));
  absl::StatusOr<topology::Topology> topology = FromProto(wire);
  if (!topology.ok()) return WithLine(json, std::string(topology.status().message()));
  return topology;
}

}  // namespace skein::convert

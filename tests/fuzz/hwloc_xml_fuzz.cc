// Parses any bytes as hwloc's XML, without and with a number of NVLinks. What is accepted is a host
// that a planner takes, but for its name; what is accepted without a number is the same with one.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "absl/status/status.h"
#include "topology/formats/hwloc_xml.h"
#include "topology/topology.h"

namespace {

void Check(skein::topology::Host host) {
  if (host.numa_nodes.empty()) std::abort();
  host.name = "host";
  if (!skein::topology::CheckTopology({.hosts = {host}}).ok()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto asked = skein::topology::ParseHwlocXml(text);
  const auto given = skein::topology::ParseHwlocXml(text, {.nvlinks = 2});
  if (asked.ok()) Check(*asked);
  if (given.ok()) Check(*given);
  if (asked.ok() && given.ok() && !(*asked == *given)) std::abort();
  // What else is wrong is so with and without.
  if (!asked.ok() && !absl::IsFailedPrecondition(asked.status()) && given.ok()) std::abort();
  return 0;
}

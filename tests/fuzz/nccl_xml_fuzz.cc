// Parses any bytes as a topology of NCCL, without and with a number of NVLinks. What is accepted is
// a host that a planner takes; what is accepted without a number is the same with one.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "absl/status/status.h"
#include "topology/formats/nccl_xml.h"
#include "topology/topology.h"

namespace {

void Check(const skein::topology::Interconnect& read) {
  if (read.gpus.empty()) std::abort();
  const skein::topology::Host host = {.name = "host", .cores = 1, .interconnect = read};
  if (!skein::topology::CheckTopology({.hosts = {host}}).ok()) std::abort();
  size_t in_islands = 0;
  for (const auto& island : Islands(read)) in_islands += island.size();
  if (in_islands != read.gpus.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto asked = skein::topology::ParseNcclXml(text);
  const auto given = skein::topology::ParseNcclXml(text, {.nvlinks = 2});
  if (asked.ok()) Check(*asked);
  if (given.ok()) Check(*given);
  if (asked.ok() && given.ok() && !(*asked == *given)) std::abort();
  // What else is wrong is so with and without.
  if (!asked.ok() && !absl::IsFailedPrecondition(asked.status()) && given.ok()) std::abort();
  return 0;
}

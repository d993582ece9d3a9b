// Parses any bytes as a topology's JSON. What is accepted is sound, and comes back as it was.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "proto/convert/machines_json.h"
#include "topology/topology.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto read =
      skein::convert::TopologyFromJson(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!read.ok()) return 0;
  if (!skein::topology::CheckTopology(*read).ok()) std::abort();
  const auto again = skein::convert::TopologyFromJson(skein::convert::TopologyToJson(*read));
  if (!again.ok() || !(*again == *read)) std::abort();
  return 0;
}

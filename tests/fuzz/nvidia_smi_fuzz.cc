// Parses any bytes as what `nvidia-smi topo -m` prints. What is accepted has a connection for each
// two devices, the same from both sides, and each GPU is in one island.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "topology/formats/nvidia_smi.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using skein::topology::Path;
  const auto read =
      skein::topology::ParseNvidiaSmi(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!read.ok()) return 0;
  const size_t devices = read->gpus.size() + read->nics.size();
  if (read->gpus.empty() || read->connections.size() != devices) std::abort();
  for (size_t i = 0; i < devices; ++i) {
    if (read->connections[i].size() != devices) std::abort();
    for (size_t j = 0; j < devices; ++j) {
      if (!(read->connections[i][j] == read->connections[j][i])) std::abort();
      if ((read->connections[i][j].path == Path::kSelf) != (i == j)) std::abort();
    }
  }
  size_t in_islands = 0;
  for (const auto& island : Islands(*read)) in_islands += island.size();
  if (in_islands != read->gpus.size()) std::abort();
  return 0;
}

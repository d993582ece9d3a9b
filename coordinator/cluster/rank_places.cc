#include "coordinator/cluster/rank_places.h"

#include "base/device_kind.h"

namespace skein::coordinator {

std::vector<RankPlace> PlacesOfRanks(const topology::Machine& machine, const plan::Plan& plan) {
  std::vector<int32_t> gpus(machine.nodes.size());  // so far, of each node
  std::vector<RankPlace> places;
  for (int32_t rank = 0; rank < static_cast<int32_t>(machine.devices.size()); ++rank) {
    const topology::Device& device = machine.devices[rank];
    const int32_t gpu = device.kind == DeviceKind::kCpu ? -1 : gpus[device.node]++;
    const plan::RankPlan* const part = plan.Find(rank);
    if (part == nullptr) continue;
    places.push_back({rank, part->dp_rank, device.node, gpu});
  }
  return places;
}

}  // namespace skein::coordinator

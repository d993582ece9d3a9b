#include "coordinator/cluster/picture.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/device_kind.h"
#include "topology/draw/rank_label.h"
#include "topology/draw/svg.h"

namespace skein::coordinator {

std::string PictureOf(const topology::Machine& machine, const plan::Plan& plan) {
  std::vector<int32_t> gpus(
      machine.nodes.size());  // so far, of each node: they are in ranks' order
  std::vector<topology::RankLabel> labels;
  for (int32_t rank = 0; rank < static_cast<int32_t>(machine.devices.size()); ++rank) {
    const topology::Device& device = machine.devices[rank];
    const int32_t gpu = device.kind == DeviceKind::kCpu ? -1 : gpus[device.node]++;
    const plan::RankPlan* const part = plan.Find(rank);
    if (part == nullptr) continue;
    labels.push_back({device.node, gpu, absl::StrCat("rank ", rank), part->dp_rank});
  }
  return topology::TopologySvg(topology::TopologyOf(machine), labels,
                               absl::StrCat(plan.model_name, ", ", plan.layout.ToString()));
}

}  // namespace skein::coordinator

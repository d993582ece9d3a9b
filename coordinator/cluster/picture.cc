#include "coordinator/cluster/picture.h"

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/rank_places.h"
#include "topology/draw/rank_label.h"
#include "topology/draw/svg.h"

namespace skein::coordinator {

std::string PictureOf(const topology::Machine& machine, const plan::Plan& plan) {
  std::vector<topology::RankLabel> labels;
  for (const RankPlace& of : PlacesOfRanks(machine, plan)) {
    labels.push_back({of.host, of.gpu, absl::StrCat("rank ", of.rank), of.replica});
  }
  return topology::TopologySvg(topology::TopologyOf(machine), labels,
                               absl::StrCat(plan.model_name, ", ", plan.layout.ToString()));
}

}  // namespace skein::coordinator

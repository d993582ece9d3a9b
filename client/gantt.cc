#include "client/gantt.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/units.h"
#include "parallel/pipeline/gantt.h"
#include "parallel/pipeline/simulate.h"

namespace skein::client {

absl::Status DrawGantt(const std::string& file, const std::string& name,
                       const topology::Topology& topology, const model::ModelConfig& model,
                       const cost::Replica& replica, const cost::Workload& workload) {
  constexpr int32_t kSteps = 4;
  SKEIN_ASSIGN_OR_RETURN(const schedule::Timeline timeline,
                         cost::SimulateDecodes(topology, model, replica, workload, kSteps));
  const std::string title = absl::StrCat(
      name, ": decode of ", FormatCount(replica.sequences, "sequence"), " in ",
      replica.micro_batches, replica.micro_batches == 1 ? " micro-batch" : " micro-batches");
  return Annotate(WriteFile(file, schedule::GanttSvg(timeline, title)), "--gantt");
}

}  // namespace skein::client

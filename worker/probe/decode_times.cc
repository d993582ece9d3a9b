#include "worker/probe/decode_times.h"

#include <cstddef>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"

namespace skein::worker {

absl::StatusOr<std::vector<double>> TimeDecodes(BenchModel& model, int32_t sequences, int samples,
                                                int turns) {
  std::vector<absl::Time> ends;
  model.stage().Begin(model.DecodeOrder(sequences));
  for (int i = 0; i < samples + turns; ++i) {
    if (i + 1 < samples + turns) model.stage().Begin(model.DecodeOrder(sequences));
    SKEIN_RETURN_IF_ERROR(model.Finish());
    ends.push_back(absl::Now());
  }
  std::vector<double> seconds;
  for (size_t i = turns; i < ends.size(); ++i) {
    seconds.push_back(absl::ToDoubleSeconds(ends[i] - ends[i - turns]) / turns);
  }
  return seconds;
}

}  // namespace skein::worker

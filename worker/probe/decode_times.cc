#include "worker/probe/decode_times.h"

#include <cstddef>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"

namespace skein::worker {

absl::StatusOr<std::vector<double>> TimeDecodes(BenchModel& model, int32_t sequences, int samples) {
  constexpr int kTurns = 2;
  std::vector<absl::Time> ends;
  model.stage().Begin(model.DecodeOrder(sequences));
  // A step ends behind the beginning of the next one, which on cores is all of it.
  for (int i = 0; i < samples + kTurns; ++i) {
    model.stage().Begin(model.DecodeOrder(sequences));
    SKEIN_RETURN_IF_ERROR(model.Finish());
    ends.push_back(absl::Now());
  }
  SKEIN_RETURN_IF_ERROR(model.Finish());
  std::vector<double> seconds;
  for (size_t i = kTurns; i < ends.size(); ++i) {
    seconds.push_back(absl::ToDoubleSeconds(ends[i] - ends[i - kTurns]) / kTurns);
  }
  return seconds;
}

}  // namespace skein::worker

#include "kernels/cuda/persistent/decode_choice.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/units.h"

namespace skein::kernels::cuda {

void DecodeChoice::Add(int32_t rows, const StepTimes& without, int64_t positions,
                       const StepTimes& with) {
  times_[rows] = {without, positions, with};
}

bool DecodeChoice::Takes(int32_t rows, int64_t row_positions, int64_t sequence_positions) const {
  if (takes_all_) return true;
  const auto found = times_.lower_bound(rows);
  if (found == times_.end()) return false;
  const Times& times = found->second;
  const auto at = [&](float without, float with, int64_t positions) {
    if (times.positions == 0) return static_cast<double>(without);
    return without + static_cast<double>(with - without) * static_cast<double>(positions) /
                         static_cast<double>(times.positions);
  };
  return at(times.without.by_kernel, times.with.by_kernel, row_positions) <
         at(times.without.by_graph, times.with.by_graph, sequence_positions);
}

std::string DecodeChoice::ToString() const {
  std::string text;
  for (const auto& [rows, times] : times_) {
    absl::StrAppend(
        &text, text.empty() ? "" : ", ", FormatCount(rows, "row"),
        absl::StrFormat(" %.3f and %.3f ms", times.without.by_kernel, times.without.by_graph));
    if (times.positions == 0) continue;
    absl::StrAppendFormat(&text, " (%.3f and %.3f with %d positions)", times.with.by_kernel,
                          times.with.by_graph, times.positions);
  }
  return text;
}

}  // namespace skein::kernels::cuda

#include "kernels/host/pooler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status_macros.h"

namespace skein::kernels {
namespace {

// A task's rows: enough to be worth a thread, and few enough for all threads to get some.
constexpr int64_t kTaskRows = 32;

}  // namespace

absl::StatusOr<Pooler> Pooler::Create(const Program& program, const Weights& weights) {
  Pooler pooler;
  pooler.eps_ = program.pooled.eps;
  SKEIN_ASSIGN_OR_RETURN(pooler.gain_, weights.ReadVector(program.pooled.gain));
  return pooler;
}

void Pooler::Add(DType dtype, const std::byte* row, std::vector<float>& scratch,
                 std::vector<double>& sum) const {
  const auto cols = static_cast<int64_t>(gain_.size());
  ConvertToFloat(dtype, row, cols, scratch.data());
  double squares = 0;
  for (const float x : scratch) squares += double{x} * double{x};
  const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + double{eps_});
  for (int64_t c = 0; c < cols; ++c) sum[c] += scratch[c] * scale * gain_[c];
}

void Pooler::Pool(const Batch& batch, DType dtype, const std::byte* rows, ForEach for_each,
                  std::vector<PooledRows>& pooled) const {
  pooled.clear();
  const auto cols = static_cast<int64_t>(gain_.size());
  const int64_t row_bytes = DTypeBytes(dtype, cols);
  int64_t end = 0;
  for (const BatchSequence& sequence : batch.sequences) {
    end += sequence.rows;
    if (sequence.pooled == 0) continue;
    const int64_t begin = end - sequence.pooled;
    const int64_t tasks = (sequence.pooled + kTaskRows - 1) / kTaskRows;
    std::vector<std::vector<double>> sums(tasks, std::vector<double>(cols));
    for_each(tasks, [&](int64_t task) {
      std::vector<float> scratch(cols);
      const int64_t first = begin + task * kTaskRows;
      const int64_t last = std::min(first + kTaskRows, end);
      for (int64_t r = first; r < last; ++r) Add(dtype, rows + r * row_bytes, scratch, sums[task]);
    });
    for (int64_t task = 1; task < tasks; ++task) {
      for (int64_t c = 0; c < cols; ++c) sums[0][c] += sums[task][c];
    }
    pooled.push_back({sequence.slot, sequence.pooled, std::move(sums[0])});
  }
}

}  // namespace skein::kernels

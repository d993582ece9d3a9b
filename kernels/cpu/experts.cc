#include "kernels/cpu/experts.h"

#include <algorithm>

#include "base/status_macros.h"

namespace skein::kernels {

absl::Status Experts::Allocate(int64_t bytes) {
  SKEIN_ASSIGN_OR_RETURN(memory_, HostMemory::Allocate(bytes, "rows of experts"));
  return absl::OkStatus();
}

void Experts::Compute(const ExpertsOp& op, const Batch& batch) {
  slots_.resize(static_cast<size_t>(std::max<int64_t>(op.count, slots_.size())));
  for (Slots& slots : slots_) slots.clear();
  for (int64_t slot = 0; slot < batch.rows * batch.chosen; ++slot) {
    const float* const chosen = batch.routes + slot / batch.chosen * 2 * batch.chosen;
    const auto expert = static_cast<int32_t>(chosen[slot % batch.chosen]) - op.first;
    if (expert >= 0 && expert < op.count) {
      slots_[static_cast<size_t>(expert)].push_back(slot);
    } else {
      std::fill_n(batch.out + slot * batch.cols, batch.cols, 0.0f);
    }
  }
  for (int32_t expert = 0; expert < op.count; ++expert) {
    const Slots& slots = slots_[static_cast<size_t>(expert)];
    if (!slots.empty()) ComputeOne(op, batch, expert, slots);
  }
}

void Experts::ComputeOne(const ExpertsOp& op, const Batch& batch, int32_t expert,
                         const Slots& slots) {
  const auto rows = static_cast<int64_t>(slots.size());
  const int64_t cols = batch.cols;
  const int64_t inner = batch.inner;
  float* const in = memory_.floats();
  float* const gate_up = in + rows * cols;
  float* const units = gate_up + rows * 2 * inner;
  float* const out = units + rows * inner;
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(batch.in + slots[static_cast<size_t>(i)] / batch.chosen * cols, cols,
                in + i * cols);
  }
  const WeightId weight = op.first_weight + 2 * expert;
  products_.Multiply({.in = in, .rows = rows, .weight = weight, .out = gate_up});
  const auto glu = op.activation == GateActivation::kSilu ? simd_.swiglu : simd_.geglu_tanh;
  ForTasks(pool_, rows, inner * kExpWork, [&](int64_t i, int) {
    const float* const gate = gate_up + i * 2 * inner;
    glu(gate, gate + inner, inner, units + i * inner);
  });
  products_.Multiply({.in = units, .rows = rows, .weight = weight + 1, .out = out});
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(out + i * cols, cols, batch.out + slots[static_cast<size_t>(i)] * cols);
  }
}

}  // namespace skein::kernels

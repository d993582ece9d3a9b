#include "kernels/cpu/experts.h"

#include <algorithm>

#include "base/status_macros.h"

namespace skein::kernels {

absl::Status Experts::Allocate(int64_t bytes) {
  SKEIN_ASSIGN_OR_RETURN(memory_, HostMemory::Allocate(bytes, "rows of experts"));
  return absl::OkStatus();
}

// Slots are sorted by expert, by counting.
void Experts::Compute(const ExpertsOp& op, const Batch& batch) {
  const int64_t count = batch.rows * batch.chosen;
  const auto expert_of = [&](int64_t slot) {
    const float* const chosen = batch.routes + slot / batch.chosen * 2 * batch.chosen;
    return static_cast<int64_t>(chosen[slot % batch.chosen]) - op.first;
  };
  const auto is_here = [&](int64_t expert) { return expert >= 0 && expert < op.count; };
  auto* const slots = reinterpret_cast<int64_t*>(memory_.data());
  int64_t* const begins = slots + count;  // [op.count + 1]
  std::fill_n(begins, op.count + 1, 0);
  for (int64_t slot = 0; slot < count; ++slot) {
    const int64_t expert = expert_of(slot);
    if (is_here(expert)) {
      ++begins[expert + 1];
    } else {
      std::fill_n(batch.out + slot * batch.cols, batch.cols, 0.0f);
    }
  }
  for (int64_t expert = 0; expert < op.count; ++expert) begins[expert + 1] += begins[expert];
  for (int64_t slot = 0; slot < count; ++slot) {
    if (const int64_t expert = expert_of(slot); is_here(expert)) slots[begins[expert]++] = slot;
  }
  int64_t begin = 0;  // each begin is where the expert ends now
  for (int32_t expert = 0; expert < op.count; ++expert) {
    const int64_t end = begins[expert];
    if (end > begin)
      ComputeOne(op, batch, expert, {slots + begin, static_cast<size_t>(end - begin)});
    begin = end;
  }
}

void Experts::ComputeOne(const ExpertsOp& op, const Batch& batch, int32_t expert, Slots slots) {
  const auto rows = static_cast<int64_t>(slots.size());
  const int64_t cols = batch.cols;
  const int64_t inner = batch.inner;
  // Behind the slots and their begins.
  float* const in = memory_.floats() + 2 * (batch.rows * batch.chosen + op.count + 1);
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

// Counts the rows that choose each expert.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/expert_load.h"
#include "kernels/ops/program.h"

namespace skein::kernels {

// One thread counts, any thread asks.
class ExpertCounts {
 public:
  explicit ExpertCounts(const Program& program);

  // Takes in what operation `at`, a RouteOp, has written: [rows, 2 * chosen].
  void Add(size_t at, const float* routes, int64_t rows);
  // None where the Program has no experts, or no row has chosen yet.
  std::optional<ExpertLoad> Load() const;

 private:
  struct Layer {
    int32_t layer = -1;
    int64_t chosen = 0;
    std::atomic<int64_t> rows = 0;
    std::vector<std::atomic<int64_t>> of_experts;
  };

  std::map<size_t, std::unique_ptr<Layer>> layers_;  // by operation
};

}  // namespace skein::kernels

// Which small batches go by the persistent step and which by graphs: by what both took. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace skein::kernels::cuda {

// Milliseconds of a step.
struct StepTimes {
  float by_kernel = 0;
  float by_graph = 0;
};

class DecodeChoice {
 public:
  // Of steps of so many rows, a sequence each: where none has a position before it, and where all
  // of them together have `positions`; without the latter where that is 0. Batches of fewer rows,
  // of which nothing is known, take as long.
  void Add(int32_t rows, const StepTimes& without, int64_t positions, const StepTimes& with);
  // All batches go by the persistent step.
  void TakeAll() { takes_all_ = true; }

  // Whether such a batch does. The persistent step reads a sequence's positions for each of its
  // rows, and the kernels of graphs for all at once: row_positions are those before all rows,
  // sequence_positions those before the last row of each sequence.
  bool Takes(int32_t rows, int64_t row_positions, int64_t sequence_positions) const;

  // "1 row 4.966 and 5.378 ms, 2 rows 5.003 and 5.489 ms (6.100 and 6.300 with 65536 positions)"
  std::string ToString() const;

 private:
  struct Times {
    StepTimes without;
    int64_t positions = 0;
    StepTimes with;
  };
  std::map<int32_t, Times> times_;  // by rows
  bool takes_all_ = false;
};

}  // namespace skein::kernels::cuda

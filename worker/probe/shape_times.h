// Times steps of models of several shapes in rounds, all models in each: what else a host does
// comes and goes within tenths of seconds, and would be taken for what one of them costs.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "worker/bench/bench_model.h"
#include "worker/probe/probe_model.h"

namespace skein::worker {

// What is timed of a shape.
struct ShapeSteps {
  ProbeShape shape;
  DType dtype = DType::kBF16;
  std::vector<int32_t> decodes;  // rows of each, ascending
  std::vector<int32_t> prompts;  // rows of each, ascending
  int rounds = 1;
  // Of a decode in a round; 0, and for what is not timed again: as many as are worth it.
  int samples = 0;
  // Steps of more rows are timed in the first round alone.
  int32_t most_again = INT32_MAX;
};

struct ShapeTimes {
  ShapeSteps steps;
  StepCost cost;
  struct Point {
    int32_t rows = 0;
    double seconds = 0;          // the median of the round that counts
    double context = 0;          // positions that a row attended to, on average
    double spread = 0;           // of that round
    std::vector<double> rounds;  // the median of each, as they came
  };
  std::vector<Point> points;  // decodes, then prompts
};

// Which of the rounds of a point is taken. A GPU's host delays steps now and then, and nothing
// makes them shorter: the shortest. Cores have neighbours who take of caches and memory all the
// time: the median, of two the shorter one. There is one at least.
StepTime RoundThatCounts(std::vector<StepTime> rounds, bool is_gpu);

// Holds all models at once. Errors are those of the back end.
absl::StatusOr<std::vector<ShapeTimes>> TimeShapes(StepTimer& timer,
                                                   absl::Span<const ShapeSteps> shapes);

}  // namespace skein::worker

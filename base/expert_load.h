// How evenly rows have chosen a mixture's experts.
#pragma once

#include <cstdint>

namespace skein {

// Of all layers of an executable with experts, since it was made: the expert that most more rows
// than on the average have chosen.
struct ExpertLoad {
  int64_t rows = 0;    // that chose in its layer
  int32_t layer = -1;  // of the model
  int32_t expert = -1;
  double of_average = 0;  // its rows, where all experts have as many: 1

  friend bool operator==(const ExpertLoad&, const ExpertLoad&) = default;
};

}  // namespace skein

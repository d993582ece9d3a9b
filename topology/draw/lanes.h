// Ways between devices of a row, each on a level of its own where others are in the way. Pure; any
// thread.
#pragma once

#include <vector>

namespace skein::topology::draw {

struct Span {
  double left = 0;
  double right = 0;
};

// A level for each span, from 0: two of one level are `apart` or more. Short ones come lowest.
std::vector<int> LevelsOf(const std::vector<Span>& spans, double apart);

// The widest part of `span` that none of `crossings` is in.
Span WidestGap(const Span& span, std::vector<double> crossings);

}  // namespace skein::topology::draw

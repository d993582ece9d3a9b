#include "topology/draw/lanes.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace skein::topology::draw {

std::vector<int> LevelsOf(const std::vector<Span>& spans, double apart) {
  std::vector<size_t> order(spans.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto length = [&](size_t i) { return spans[i].right - spans[i].left; };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t i, size_t j) { return length(i) < length(j); });
  std::vector<int> levels(spans.size());
  std::vector<std::vector<Span>> taken;
  for (const size_t i : order) {
    const auto free = [&](const std::vector<Span>& level) {
      return std::none_of(level.begin(), level.end(), [&](const Span& other) {
        return spans[i].left < other.right + apart && other.left < spans[i].right + apart;
      });
    };
    auto level = std::find_if(taken.begin(), taken.end(), free);
    if (level == taken.end()) level = taken.emplace(taken.end());
    level->push_back(spans[i]);
    levels[i] = static_cast<int>(level - taken.begin());
  }
  return levels;
}

Span WidestGap(const Span& span, std::vector<double> crossings) {
  crossings.push_back(span.right);
  std::sort(crossings.begin(), crossings.end());
  Span widest = {span.left, span.left};
  double left = span.left;
  for (const double crossing : crossings) {
    const double right = std::clamp(crossing, span.left, span.right);
    if (right - left > widest.right - widest.left) widest = {left, right};
    left = right;
  }
  return widest;
}

}  // namespace skein::topology::draw

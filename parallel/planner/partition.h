// The best of the ways to part a few items into groups, and to put them in order. Pure.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"

namespace skein::plan {

// So many are searched: 105 ways to make pairs of them, 40,320 orders.
inline constexpr int kMostParted = 8;

struct GroupCost {
  int faults = 0;   // the fewer of all groups together, the better, whatever the times
  double time = 0;  // not negative
};

// As many groups of `size` as can be of the items 0 to count - 1, at most kMostParted, ascending
// within each: those with the fewest faults, then whose slowest takes the least time, then the
// others together. Partings are tried in lexicographic order, and a later one has to be 5% better
// than the best so far, so that noise does not part them anew. None where each takes forever.
std::vector<std::vector<int>> BestGroups(
    int count, int size, absl::FunctionRef<GroupCost(const std::vector<int>& group)> cost);

// Of the orders of `items`, at most kMostParted, that whose steps from each to the next cost the
// least together (by subsets: Held and Karp, 1962); `items` as they are where that is within 5%.
std::vector<int> BestOrder(const std::vector<int>& items,
                           absl::FunctionRef<double(int from, int to)> step);
// What the steps of an order cost together.
double OrderCost(const std::vector<int>& order, absl::FunctionRef<double(int from, int to)> step);

}  // namespace skein::plan

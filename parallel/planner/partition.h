// The best of the ways to part a few items into groups, and to put them in order. Pure.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"

namespace skein::plan {

// So many are searched: 105 ways to make pairs of them, 40,320 orders.
inline constexpr int kMostParted = 8;

// As many groups of `size` as can be of the items 0 to count - 1, at most kMostParted, ascending
// within each: those whose slowest and mean cost, added up, are the least. Of partings that differ
// by less than 5% the first in lexicographic order, so that noise does not part them anew.
// cost: of a group, not negative.
std::vector<std::vector<int>> BestGroups(
    int count, int size, absl::FunctionRef<double(const std::vector<int>& group)> cost);

// Of the orders of `items`, at most kMostParted, that whose steps from each to the next cost the
// least together (by subsets: Held and Karp, 1962); `items` as they are where that is within 5%.
std::vector<int> BestOrder(const std::vector<int>& items,
                           absl::FunctionRef<double(int from, int to)> step);
// What the steps of an order cost together.
double OrderCost(const std::vector<int>& order, absl::FunctionRef<double(int from, int to)> step);

}  // namespace skein::plan

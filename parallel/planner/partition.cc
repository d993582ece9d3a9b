#include "parallel/planner/partition.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

namespace skein::plan {
namespace {

constexpr double kBetter = 0.95;  // what is worth another parting or order
constexpr double kInfinite = std::numeric_limits<double>::infinity();

struct Total {
  int faults = 0;
  double slowest = 0;
  double sum = 0;
};

bool IsBetter(const Total& a, const Total& b) {
  if (a.faults != b.faults) return a.faults < b.faults;
  if (a.slowest < kBetter * b.slowest) return true;
  return a.slowest <= b.slowest && a.sum - a.slowest < kBetter * (b.sum - b.slowest);
}

class Parting {
 public:
  Parting(int count, int size, absl::FunctionRef<GroupCost(const std::vector<int>&)> cost)
      : count_(count), size_(size), cost_(cost) {}

  std::vector<std::vector<int>> Best() {
    Part(0, count_ % size_, {});
    if (best_total_.slowest == kInfinite) best_.clear();
    return std::move(best_);
  }

 private:
  GroupCost CostOf(const std::vector<int>& group) {
    const auto [found, anew] = costs_.try_emplace(group);
    if (anew) found->second = cost_(group);
    return found->second;
  }

  // Deals the first item that is free to a group or, while some may be, leaves it over.
  void Part(unsigned taken, int may_be_left, const Total& so_far) {
    int first = 0;
    while (first < count_ && (taken & (1U << first)) != 0) ++first;
    if (first == count_) {
      if (!IsBetter(so_far, best_total_)) return;
      best_total_ = so_far;
      best_ = groups_;
      return;
    }
    groups_.push_back({first});
    Fill(first + 1, taken | (1U << first), may_be_left, so_far);
    groups_.pop_back();
    if (may_be_left > 0) Part(taken | (1U << first), may_be_left - 1, so_far);
  }

  // Adds items from `from` on to the newest group until it has its size.
  void Fill(int from, unsigned taken, int may_be_left, const Total& so_far) {
    if (static_cast<int>(groups_.back().size()) == size_) {
      const GroupCost cost = CostOf(groups_.back());
      const Total total = {so_far.faults + cost.faults, std::max(so_far.slowest, cost.time),
                           so_far.sum + cost.time};
      const bool hopeless =
          total.faults > best_total_.faults ||
          (total.faults == best_total_.faults && total.slowest > best_total_.slowest);
      if (!hopeless) Part(taken, may_be_left, total);
      return;
    }
    for (int item = from; item < count_; ++item) {
      if ((taken & (1U << item)) != 0) continue;
      groups_.back().push_back(item);
      Fill(item + 1, taken | (1U << item), may_be_left, so_far);
      groups_.back().pop_back();
    }
  }

  const int count_;
  const int size_;
  const absl::FunctionRef<GroupCost(const std::vector<int>&)> cost_;
  std::map<std::vector<int>, GroupCost> costs_;
  std::vector<std::vector<int>> groups_;
  std::vector<std::vector<int>> best_;
  Total best_total_ = {std::numeric_limits<int>::max(), kInfinite, kInfinite};
};

}  // namespace

std::vector<std::vector<int>> BestGroups(
    int count, int size, absl::FunctionRef<GroupCost(const std::vector<int>& group)> cost) {
  if (size > count) return {};
  return Parting(count, size, cost).Best();
}

double OrderCost(const std::vector<int>& order, absl::FunctionRef<double(int from, int to)> step) {
  double cost = 0;
  for (size_t i = 1; i < order.size(); ++i) cost += step(order[i - 1], order[i]);
  return cost;
}

std::vector<int> BestOrder(const std::vector<int>& items,
                           absl::FunctionRef<double(int from, int to)> step) {
  const size_t count = items.size();
  if (count < 3) return items;
  struct End {
    double cost = kInfinite;
    size_t before = 0;
  };
  // Of the orders of a subset that end with an item.
  std::vector<std::array<End, kMostParted>> ends(size_t{1} << count);
  for (size_t last = 0; last < count; ++last) ends[size_t{1} << last][last].cost = 0;
  for (size_t subset = 1; subset < ends.size(); ++subset) {
    for (size_t last = 0; last < count; ++last) {
      const double cost = ends[subset][last].cost;
      if (cost == kInfinite) continue;
      for (size_t next = 0; next < count; ++next) {
        if ((subset >> next & 1) != 0) continue;
        End& end = ends[subset | size_t{1} << next][next];
        const double longer = cost + step(items[last], items[next]);
        if (longer < end.cost) end = {longer, last};
      }
    }
  }
  size_t subset = ends.size() - 1;
  size_t last = 0;
  for (size_t other = 1; other < count; ++other) {
    if (ends[subset][other].cost < ends[subset][last].cost) last = other;
  }
  if (ends[subset][last].cost >= kBetter * OrderCost(items, step)) return items;
  std::vector<int> order;
  while (subset != 0) {
    order.push_back(items[last]);
    const size_t before = ends[subset][last].before;
    subset ^= size_t{1} << last;
    last = before;
  }
  std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace skein::plan

// How long a request may wait while ever more arrives than can be served.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "worker/scheduler/fake_engine.h"

namespace skein::worker {
namespace {

// Twice as much arrives, for ever, as the slots can serve: even what has the upper half of the
// priorities alone is more.
class Overload {
 public:
  // `aging_s` of waiting counts as one priority more; `promised_s` is what the bounds say of it.
  Overload(int seed, int64_t promised_s, int64_t aging_s)
      : promised_s_(promised_s), random_(seed), options_(RandomOptions(random_)) {
    options_.slots = 1 + seed % 4;
    options_.aging_s = aging_s;
    options_.limits.aging = absl::Seconds(aging_s);
    engine_.emplace(options_, kGroups, seed);
  }

  // Whether all that comes in the first seconds ends within its bound.
  bool EndsInTime() {
    while (!::testing::Test::HasFatalFailure()) {
      const int64_t now = engine_->now_s();
      Arrive(now);
      engine_->Step();
      bool all = now >= kWatched_s;
      for (const Request& request : requests_) {
        if (request.arrival_s >= kWatched_s) break;
        if (engine_->Done(request.id)) continue;
        all = false;
        if (now > OutrankedUntil(request) && now > Bound(request)) return false;
      }
      if (all) return true;
    }
    return false;
  }

 private:
  static constexpr int kGroups = 3;
  static constexpr int kPriority = 2;  // -2 to 2
  static constexpr int64_t kWatched_s = 40;

  struct Request {
    SequenceId id;
    int64_t arrival_s = 0;
    int priority = 0;
    int64_t steps = 0;  // that it takes by itself, its answers one after the other
  };

  void Arrive(int64_t now) {
    while (arrived_ <= 2 * options_.slots * now) {
      FakeLoad load = RandomLoad(options_, kGroups, random_);
      load.slots = std::min(load.slots, 2);
      load.arrival_s = now;
      load.priority = std::uniform_int_distribution<int>(-kPriority, kPriority)(random_);
      if (load.deadline_s < 1 << 30) load.deadline_s += now;
      arrived_ += load.slots * load.answer;
      const SchedulerLimits& limits = options_.limits;
      const int64_t rows = std::min(
          limits.max_num_batched_tokens,
          int64_t{std::max(limits.stages, limits.micro_batches)} * limits.max_micro_batch_rows);
      // One more, in which the last token comes in.
      const int64_t steps = load.slots * ((load.prompt + rows - 1) / rows + load.answer + 1);
      requests_.push_back({engine_->Add(load), now, load.priority, steps});
    }
  }

  // Whatever arrives from then on stands behind it.
  int64_t OutrankedUntil(const Request& request) const {
    return request.arrival_s + (kPriority - request.priority + 1) * promised_s_;
  }

  // The priority gap x aging, and the work ahead: all that had come by then, one after the other.
  int64_t Bound(const Request& request) const {
    int64_t bound = OutrankedUntil(request);
    for (const Request& other : requests_) {
      if (other.arrival_s >= OutrankedUntil(request)) break;
      bound += other.steps;
    }
    return bound;
  }

  const int64_t promised_s_;
  std::mt19937 random_;
  FakeEngineOptions options_;
  std::optional<FakeEngine> engine_;
  std::vector<Request> requests_;
  int64_t arrived_ = 0;  // tokens of answers
};

TEST(OverloadTest, EveryRequestEndsWithinItsBoundUnderEndlessOverload) {
  for (int seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const int64_t aging_s = 2 + seed % 11;
    EXPECT_TRUE(Overload(seed, aging_s, aging_s).EndsInTime());
    // It is the aging that does it.
    if (seed % 6 == 0) {
      EXPECT_FALSE(Overload(seed, aging_s, 1 << 30).EndsInTime());
    }
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace skein::worker

// A small engine that keeps true accounts, for tests of what is scheduled: page by page with users,
// a prefix cache, answers that share pages, pages given back behind a window, a swap pool, and one
// step in flight while the next is planned. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "worker/scheduler/schedule.h"

namespace skein::worker {

struct FakeLoad {
  int group = 0;              // requests of a group begin alike
  int64_t prefix_tokens = 0;  // by so many tokens
  int64_t prompt = 1;
  int64_t answer = 1;  // at most
  int priority = 0;
  int64_t arrival_s = 0;
  int64_t deadline_s = 1 << 30;
  int slots = 1;
};

struct FakeEngineOptions {
  SchedulerLimits limits;
  int64_t aging_s = 10;
  int slots = 4;
  int64_t pages = 20;
  int64_t swap_pages = 0;
  PreemptionRates rates;
  double end_of_text = 0;  // probability of a token
};

// A step takes a second. Fails the test that calls it where a plan is wrong.
class FakeEngine {
 public:
  FakeEngine(const FakeEngineOptions& options, int groups, int seed)
      : options_(options),
        users_(options.pages),
        cached_(options.pages),
        cache_(groups),
        random_(seed) {}

  SequenceId Add(const FakeLoad& load);
  void Step();

  bool Done() const { return sequences_.empty(); }
  // True if all answers to the request are done.
  bool Done(SequenceId request) const { return !unfinished_.contains(request); }
  int64_t now_s() const { return now_s_; }
  int64_t FreePages() const { return std::count(users_.begin(), users_.end(), 0); }
  int64_t swapped() const { return swapped_; }
  // Counts of the events that it has met.
  int swaps = 0, recomputes = 0, copies = 0, hits = 0, pushed_out = 0, resumed = 0, given_back = 0;

 private:
  enum class State { kWaiting, kRunning, kFinishing };

  struct Sequence : FakeLoad {
    SequenceId id;
    SequenceId request;  // the id of its first answer
    State state = State::kWaiting;
    int64_t length = 0;
    int64_t computed = 0;
    std::vector<int> pages;  // kGone: given back
    int64_t gone = 0;        // so many, the first ones
    int64_t swapped = 0;     // pages in the pool
    bool in_flight = false;  // its last token
    int64_t admitted_step = -2;
  };

  static constexpr int kGone = -1;

  static absl::Time At(int64_t seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

  int64_t EffectivePriority(const Sequence& s) const {
    return s.priority + (now_s_ - s.arrival_s) / options_.aging_s;
  }
  auto Key(const Sequence& s) const {
    return std::make_tuple(-EffectivePriority(s), s.deadline_s, s.arrival_s, s.id);
  }

  int32_t FreeSlots() const;
  // Behind so many pages, of which the first ones may be gone, all is cached that a row sees.
  int64_t HitPages(const Sequence& s) const;
  // The first page that rows from `position` on see.
  int64_t FirstSeen(int64_t position) const;
  void GiveBack(Sequence& s);
  // Forgets a cached page.
  void Evict(std::vector<int>& cache, size_t index);
  bool Copies(const Sequence& s) const;
  void TakeSnapshot();
  void CheckProgress(const StepPlan& plan) const;
  void Preempt(const StepPlan& plan);
  void Admit(const StepPlan& plan);
  void Compute(const StepPlan& plan, std::set<SequenceId>* sampled);
  void ComputeChunk(const Chunk& chunk, std::set<SequenceId>* sampled);
  void Sample(Sequence& s, std::set<SequenceId>* sampled);
  // Tokens of the step before come in while this one, which draws `sampled`, is under way.
  void TakeResults(const std::set<SequenceId>& sampled);
  void Release(Sequence& s);
  void Grow(Sequence& s);
  void Allocate(int* page);

  const FakeEngineOptions options_;
  std::map<SequenceId, Sequence> sequences_;  // that are not done
  std::map<SequenceId, int> unfinished_;      // answers to each request
  std::vector<int> users_;                    // of each page
  std::vector<bool> cached_;                  // each page
  std::vector<std::vector<int>> cache_;       // pages of each group's prefix; kGone: evicted
  int64_t swapped_ = 0;
  std::set<SequenceId> in_flight_;
  std::vector<SequenceView> waiting_, running_;
  SequenceId next_id_;  // the last one given
  int64_t now_s_ = 0;
  std::mt19937 random_;
};

FakeEngineOptions RandomOptions(std::mt19937& random);
FakeLoad RandomLoad(const FakeEngineOptions& options, int groups, std::mt19937& random);

}  // namespace skein::worker

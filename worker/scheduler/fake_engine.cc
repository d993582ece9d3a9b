#include "worker/scheduler/fake_engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "gtest/gtest.h"

namespace skein::worker {

SequenceId FakeEngine::Add(const FakeLoad& load) {
  Sequence sequence;
  static_cast<FakeLoad&>(sequence) = load;
  sequence.id = sequence.request = ++next_id_;
  sequence.length = load.prompt;
  sequences_[sequence.id] = sequence;
  unfinished_[sequence.id] = 1;
  return sequence.id;
}

void FakeEngine::Step() {
  TakeSnapshot();
  const StepPlan plan = Schedule({.now = At(now_s_),
                                  .waiting = waiting_,
                                  .running = running_,
                                  .free_slots = FreeSlots(),
                                  .free_pages = FreePages(),
                                  .free_swap_pages = options_.swap_pages - swapped_,
                                  .rates = options_.rates},
                                 options_.limits);
  CheckProgress(plan);
  std::set<SequenceId> sampled;
  ASSERT_NO_FATAL_FAILURE(Preempt(plan));
  ASSERT_NO_FATAL_FAILURE(Admit(plan));
  ASSERT_NO_FATAL_FAILURE(Compute(plan, &sampled));
  TakeResults(sampled);
  for (const SequenceId id : sampled) {
    if (const auto found = sequences_.find(id); found != sequences_.end()) {
      found->second.in_flight = true;
    }
  }
  in_flight_ = std::move(sampled);
  ++now_s_;
}

int32_t FakeEngine::FreeSlots() const {
  int used = 0;
  for (const auto& [id, s] : sequences_) {
    if (s.state == State::kRunning || s.state == State::kFinishing) used += s.slots;
  }
  return options_.slots - used;
}

int64_t FakeEngine::FirstSeen(int64_t position) const {
  const SchedulerLimits& limits = options_.limits;
  return limits.window > 0 ? std::max<int64_t>(position - limits.window + 1, 0) / limits.page_size
                           : 0;
}

int64_t FakeEngine::HitPages(const Sequence& s) const {
  const int64_t page = options_.limits.page_size;
  const std::vector<int>& cache = cache_[s.group];
  for (int64_t hit = std::min<int64_t>(
           {static_cast<int64_t>(cache.size()), s.prefix_tokens / page, (s.length - 1) / page});
       hit > 0; --hit) {
    if (std::count(cache.begin() + FirstSeen(hit * page), cache.begin() + hit, kGone) == 0) {
      return hit;
    }
  }
  return 0;
}

void FakeEngine::GiveBack(Sequence& s) {
  for (; s.gone < FirstSeen(s.computed); ++s.gone) {
    int& page = s.pages[s.gone];
    ASSERT_GT(users_[page], 0);
    --users_[page];
    page = kGone;
    ++given_back;
  }
}

void FakeEngine::Evict(std::vector<int>& cache, size_t index) {
  cached_[cache[index]] = false;
  cache[index] = kGone;
  while (!cache.empty() && cache.back() == kGone) cache.pop_back();
}

bool FakeEngine::Copies(const Sequence& s) const {
  const int64_t page = options_.limits.page_size;
  return s.computed % page != 0 && users_[s.pages[s.computed / page]] > 1;
}

void FakeEngine::TakeSnapshot() {
  waiting_.clear();
  running_.clear();
  for (const auto& [id, s] : sequences_) {
    SequenceView view = {.id = id,
                         .priority = s.priority,
                         .arrival = At(s.arrival_s),
                         .deadline = At(s.deadline_s),
                         .slots = s.slots,
                         .length = s.length,
                         .computed = s.computed,
                         .pages = static_cast<int64_t>(s.pages.size()) - s.gone,
                         .gone_pages = s.gone};
    if (s.state == State::kRunning) {
      view.own_pages = std::count_if(s.pages.begin() + s.gone, s.pages.end(),
                                     [&](int page) { return users_[page] == 1; });
      view.copies = Copies(s);
      running_.push_back(view);
    } else if (s.state == State::kWaiting && s.arrival_s <= now_s_) {
      view.pending = s.in_flight;
      if (s.swapped > 0) {
        view.swapped = true;
        view.pages = s.swapped;
      } else {
        const int64_t hit = HitPages(s);
        view.computed = hit * options_.limits.page_size;
        view.gone_pages = FirstSeen(view.computed);
        view.pages = hit - view.gone_pages;
        for (int64_t i = view.gone_pages; i < hit; ++i) {
          view.idle_pages += users_[cache_[s.group][i]] == 0;
        }
      }
      waiting_.push_back(view);
    }
  }
  std::shuffle(waiting_.begin(), waiting_.end(), random_);
  std::shuffle(running_.begin(), running_.end(), random_);
}

void FakeEngine::CheckProgress(const StepPlan& plan) const {
  if (!plan.preemptions.empty() || !plan.admissions.empty() || !plan.micro_batches.empty()) {
    return;
  }
  const bool finishing = std::any_of(sequences_.begin(), sequences_.end(), [](const auto& s) {
    return s.second.state == State::kFinishing;
  });
  const bool can_run =
      !running_.empty() || std::any_of(waiting_.begin(), waiting_.end(),
                                       [](const SequenceView& v) { return !v.pending; });
  EXPECT_TRUE(finishing || !can_run) << "an empty plan at " << now_s_;
}

void FakeEngine::Preempt(const StepPlan& plan) {
  for (const Preemption& preemption : plan.preemptions) {
    Sequence& s = sequences_.at(preemption.id);
    ASSERT_EQ(s.state, State::kRunning);
    s.state = State::kWaiting;
    const bool outranked = std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& v) {
      return !v.pending && EffectivePriority(sequences_.at(v.id)) > EffectivePriority(s);
    });
    ASSERT_TRUE(outranked || s.admitted_step < now_s_ - 1) << "ping-pong at " << now_s_;
    pushed_out += outranked;
    if (preemption.swap) {
      ++swaps;
      s.swapped = std::ssize(s.pages) - s.gone;
      swapped_ += s.swapped;
      ASSERT_LE(swapped_, options_.swap_pages);
    } else {
      ++recomputes;
    }
    Release(s);
    if (!preemption.swap) s.computed = s.gone = 0;
  }
  for (const Preemption& preemption : plan.preemptions) {
    for (const SequenceView& v : running_) {
      const Sequence& kept = sequences_.at(v.id);
      if (kept.state != State::kRunning) continue;
      ASSERT_LT(Key(kept), Key(sequences_.at(preemption.id))) << "not the last gave way";
    }
  }
}

void FakeEngine::Admit(const StepPlan& plan) {
  const bool alone = plan.admissions.size() == 1 && plan.preemptions.size() == running_.size();
  std::set<SequenceId> admitted;
  for (const SequenceId id : plan.admissions) {
    const auto view = std::find_if(waiting_.begin(), waiting_.end(),
                                   [&](const SequenceView& v) { return v.id == id; });
    ASSERT_NE(view, waiting_.end()) << id << " does not wait, or gave way in this step";
    ASSERT_FALSE(view->pending);
    ASSERT_LE(view->slots, FreeSlots());
    Sequence& s = sequences_.at(id);
    ASSERT_TRUE(admitted.insert(id).second);
    s.state = State::kRunning;
    // Answers that nobody was beside may lack pages of their own at once.
    if (!alone || s.slots == 1) s.admitted_step = now_s_;
    resumed += s.length > s.prompt;
    if (s.swapped > 0) continue;
    ASSERT_EQ(view->gone_pages + view->pages, HitPages(s));
    s.gone = view->gone_pages;
    s.pages.assign(cache_[s.group].begin(), cache_[s.group].begin() + HitPages(s));
    std::fill_n(s.pages.begin(), s.gone, kGone);
    for (int64_t i = s.gone; i < std::ssize(s.pages); ++i) ++users_[s.pages[i]];
    s.computed = view->computed;
    hits += view->pages > 0;
  }
  for (const SequenceId id : plan.admissions) {
    Sequence& s = sequences_.at(id);
    if (s.swapped > 0) s.pages.assign(s.gone, kGone);
    for (; s.swapped > 0; --s.swapped, --swapped_) ASSERT_NO_FATAL_FAILURE(Grow(s));
  }
  for (const SequenceId id : admitted) {
    for (const auto& [other, s] : sequences_) {
      if (s.state != State::kWaiting || s.arrival_s > now_s_ || s.in_flight) continue;
      ASSERT_LT(Key(sequences_.at(id)), Key(s)) << id << " overtakes " << other;
    }
  }
}

void FakeEngine::Compute(const StepPlan& plan, std::set<SequenceId>* sampled) {
  const SchedulerLimits& limits = options_.limits;
  const int32_t cuts = limits.stages == 1 ? 1 : 2 * limits.stages;  // of prompts
  ASSERT_LE(static_cast<int32_t>(plan.micro_batches.size()), std::max(cuts, limits.micro_batches));
  int64_t rows = 0;
  for (const std::vector<Chunk>& batch : plan.micro_batches) {
    int64_t batch_rows = 0;
    std::set<SequenceId> seen;
    for (const Chunk& chunk : batch) {
      ASSERT_TRUE(seen.insert(chunk.id).second) << "twice in a micro-batch";
      ASSERT_NO_FATAL_FAILURE(ComputeChunk(chunk, sampled));
      batch_rows += chunk.count;
    }
    ASSERT_GE(batch_rows, 1);
    ASSERT_LE(batch_rows, limits.max_micro_batch_rows);
    rows += batch_rows;
  }
  ASSERT_LE(rows, limits.max_num_batched_tokens);
  for (auto& [id, s] : sequences_) {
    if (s.state == State::kRunning) ASSERT_NO_FATAL_FAILURE(GiveBack(s));
  }
}

void FakeEngine::ComputeChunk(const Chunk& chunk, std::set<SequenceId>* sampled) {
  const int64_t page = options_.limits.page_size;
  Sequence& s = sequences_.at(chunk.id);
  ASSERT_EQ(s.state, State::kRunning);
  ASSERT_FALSE(sampled->count(chunk.id)) << "a chunk beyond the end";
  ASSERT_EQ(chunk.begin, s.computed) << "a token is computed twice or never";
  ASSERT_GE(chunk.count, 1);
  if (Copies(s)) {
    ++copies;
    int& shared = s.pages[s.computed / page];
    --users_[shared];
    ASSERT_NO_FATAL_FAILURE(Allocate(&shared));
  }
  s.computed += chunk.count;
  ASSERT_LE(s.computed, s.length);
  while (static_cast<int64_t>(s.pages.size()) * page < s.computed) {
    ASSERT_NO_FATAL_FAILURE(Grow(s));
  }
  std::vector<int>& cache = cache_[s.group];
  while (static_cast<int64_t>(cache.size() + 1) * page <= std::min(s.prefix_tokens, s.computed) &&
         s.pages[cache.size()] != kGone && !cached_[s.pages[cache.size()]] &&
         (cache.empty() || cache.back() == s.pages[cache.size() - 1])) {
    cached_[s.pages[cache.size()]] = true;
    cache.push_back(s.pages[cache.size()]);
  }
  ASSERT_EQ(chunk.draws, s.computed == s.length);
  if (chunk.draws) Sample(s, sampled);
}

void FakeEngine::Sample(Sequence& s, std::set<SequenceId>* sampled) {
  ++s.length;
  const int siblings = s.slots - 1;
  s.slots = 1;
  if (s.length == s.prompt + s.answer) s.state = State::kFinishing;
  sampled->insert(s.id);
  for (int i = 0; i < siblings; ++i) {
    Sequence sibling = s;
    sibling.id = ++next_id_;
    for (int64_t i = sibling.gone; i < std::ssize(sibling.pages); ++i) ++users_[sibling.pages[i]];
    ++unfinished_[s.request];
    sampled->insert(sibling.id);
    sequences_[sibling.id] = std::move(sibling);
  }
}

void FakeEngine::TakeResults(const std::set<SequenceId>& sampled) {
  std::bernoulli_distribution end_of_text(options_.end_of_text);
  for (const SequenceId id : in_flight_) {
    const auto found = sequences_.find(id);
    if (found == sequences_.end()) continue;
    Sequence& s = found->second;
    s.in_flight = false;
    const bool last = s.state == State::kFinishing && sampled.count(id) == 0;
    if (!last && !end_of_text(random_)) continue;
    swapped_ -= s.swapped;
    Release(s);
    if (--unfinished_.at(s.request) == 0) unfinished_.erase(s.request);
    sequences_.erase(found);
  }
}

void FakeEngine::Release(Sequence& s) {
  for (const int page : s.pages) {
    if (page == kGone) continue;
    ASSERT_GT(users_[page], 0);
    --users_[page];
  }
  s.pages.clear();
}

void FakeEngine::Grow(Sequence& s) {
  s.pages.emplace_back();
  Allocate(&s.pages.back());
}

void FakeEngine::Allocate(int* page) {
  for (size_t i = 0; i < users_.size(); ++i) {
    if (users_[i] == 0 && !cached_[i]) {
      users_[i] = 1;
      *page = i;
      return;
    }
  }
  for (std::vector<int>& cache : cache_) {
    for (size_t i = cache.size(); i-- > 0;) {
      if (cache[i] == kGone || users_[cache[i]] > 0) continue;
      *page = cache[i];
      Evict(cache, i);
      users_[*page] = 1;
      return;
    }
  }
  FAIL() << "no page is left at " << now_s_;
}

FakeEngineOptions RandomOptions(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  FakeEngineOptions options;
  options.aging_s = pick(1, 40);
  options.limits = {.max_num_batched_tokens = pick(1, 60),
                    .stages = pick(1, 4),
                    .micro_batches = pick(1, 4),
                    .max_micro_batch_rows = pick(1, 40),
                    .page_size = pick(1, 16),
                    .aging = absl::Seconds(options.aging_s)};
  options.slots = pick(1, 8);
  options.pages = pick(4, 30);
  options.swap_pages = pick(0, 1) * pick(1, 30);
  options.rates = {.prefill_tokens_per_s = 10.0 * pick(1, 10),
                   .swap_pages_per_s = 1.0 * pick(1, 100)};
  return options;
}

FakeLoad RandomLoad(const FakeEngineOptions& options, int groups, std::mt19937& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const SchedulerLimits& limits = options.limits;
  // With a window texts may be longer than all pages, of which they hold a part at a time.
  const int64_t most = options.pages * limits.page_size * (limits.window > 0 ? 3 : 1);
  FakeLoad load;
  load.prompt = pick(1, most * 2 / 3);
  load.answer = pick(1, std::min<int64_t>(most - load.prompt, 40));
  load.group = pick(0, groups - 1);
  // A group's prefix is the same tokens for all that are long enough.
  load.prefix_tokens = load.prompt * pick(0, 1);
  load.priority = pick(0, 3) == 0 ? pick(-2, 2) : 0;
  load.arrival_s = pick(0, 60);
  if (pick(0, 3) == 0) load.deadline_s = load.arrival_s + pick(1, 200);
  if (pick(0, 3) == 0) load.slots = pick(1, options.slots);
  return load;
}

}  // namespace skein::worker

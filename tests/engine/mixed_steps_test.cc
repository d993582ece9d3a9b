// What replicas serve is a mix: decodes in a micro-batch for every stage or one more, prompts in up
// to twice as many pieces, sequences that join, end and are cancelled. Random requests go through
// the scheduler, its steps through the lists that stages walk, and those through the simulator.
#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "parallel/pipeline/simulate.h"
#include "worker/scheduler/schedule.h"

namespace skein::worker {
namespace {

using schedule::Interval;
using schedule::MicroBatchId;
using schedule::Operation;

constexpr int kSteps = 40;
constexpr int kSeeds = 20;
constexpr int32_t kSlots = 24;

struct Sequence {
  SequenceView view;
  int64_t left = 0;  // tokens of its answer to come
  // How many messages of tokens there are once its last token has come; 0: it has none.
  int64_t awaited = 0;
};

// What must wait for what: `after` for the tokens that `before` samples.
struct Feed {
  MicroBatchId before, after;
};

struct Served {
  schedule::Schedule lists;
  std::vector<MicroBatchId> micro_batches;  // of all steps
  std::vector<Feed> feeds;
  int64_t untaken = 0;  // messages of tokens
  int mixed = 0;        // steps with decodes and more micro-batches than those fill
};

// A leader without an engine: as ReplicaState, it plans as if all that is in flight had come, and
// as Stage, it takes in tokens where they are needed, and two steps later at the latest.
class Leader {
 public:
  Leader(int32_t stages, uint32_t seed) : stages_(stages), random_(seed) {
    const int32_t rows = Pick(4, 64);
    limits_ = {.max_num_batched_tokens = std::max(int64_t{rows} * stages, int64_t{kSlots}),
               .stages = stages,
               .micro_batches = stages == 1 ? 1 : stages + Pick(0, 1),
               .max_micro_batch_rows = std::max(rows, kSlots),
               .page_size = 16};
  }

  Served Serve() {
    for (int i = 0; i < kSteps; ++i) {
      for (int32_t arrivals = Pick(-3, 3); arrivals > 0; --arrivals) Arrive();
      Cancel();
      Step();
    }
    run_.untaken = static_cast<int64_t>(messages_.size()) - taken_;
    return std::move(run_);
  }

 private:
  int32_t Pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }

  void Arrive() {
    Sequence sequence;
    sequence.view = {.id = ++ids_, .arrival = absl::UnixEpoch(), .length = Pick(1, 200)};
    sequence.left = Pick(1, 12);
    waiting_[ids_] = sequence;
  }

  void Cancel() {
    if (running_.empty() || Pick(0, 3) > 0) return;
    running_.erase(std::next(running_.begin(), Pick(0, static_cast<int32_t>(running_.size()) - 1)));
  }

  StepPlan Plan() const {
    std::vector<SequenceView> waiting, running;
    for (const auto& [id, sequence] : waiting_) waiting.push_back(sequence.view);
    for (const auto& [id, sequence] : running_) running.push_back(sequence.view);
    return Schedule({.now = absl::UnixEpoch(),
                     .waiting = waiting,
                     .running = running,
                     .free_slots = kSlots - static_cast<int32_t>(running.size()),
                     .free_pages = 1 << 20},
                    limits_);
  }

  void Step() {
    const StepPlan plan = Plan();
    ASSERT_TRUE(plan.preemptions.empty());
    for (SequenceId id : plan.admissions) running_.insert(waiting_.extract(id));
    if (plan.micro_batches.empty()) return;
    const auto step = static_cast<int64_t>(run_.lists.size());
    const auto before = static_cast<int64_t>(messages_.size());
    int64_t until = known_;
    std::vector<schedule::MicroBatch> micro_batches;
    for (const std::vector<Chunk>& chunks : plan.micro_batches) {
      const MicroBatchId self = {step, static_cast<int32_t>(micro_batches.size())};
      schedule::MicroBatch& micro_batch = micro_batches.emplace_back();
      for (const Chunk& chunk : chunks) {
        const int64_t awaited = running_.at(chunk.id).awaited;
        if (awaited > 0) run_.feeds.push_back({messages_[awaited - 1], self});
        until = std::max(until, awaited);
        micro_batch.draws |= chunk.draws;
      }
      for (; taken_ < until; ++taken_) micro_batch.feeds_on.push_back(messages_[taken_]);
      run_.micro_batches.push_back(self);
    }
    run_.lists.push_back(schedule::MakeOrder(stages_, step, micro_batches));
    Account(plan, step);
    known_ = before;
  }

  void Account(const StepPlan& plan, int64_t step) {
    size_t decodes = 0;
    for (size_t i = 0; i < plan.micro_batches.size(); ++i) {
      bool draws = false;
      for (const Chunk& chunk : plan.micro_batches[i]) {
        Sequence& sequence = running_.at(chunk.id);
        decodes += sequence.awaited > 0;
        sequence.view.computed += chunk.count;
        if (!chunk.draws) continue;
        draws = true;
        ++sequence.view.length;
        sequence.awaited = static_cast<int64_t>(messages_.size()) + 1;
        if (--sequence.left == 0) running_.erase(chunk.id);
      }
      if (draws) messages_.push_back({step, static_cast<int32_t>(i)});
    }
    run_.mixed +=
        decodes > 0 && plan.micro_batches.size() > std::min<size_t>(decodes, limits_.micro_batches);
  }

  const int32_t stages_;
  std::mt19937 random_;
  SchedulerLimits limits_;
  SequenceId ids_;  // the last one given
  std::map<SequenceId, Sequence> waiting_, running_;
  std::vector<MicroBatchId> messages_;  // of tokens, ever
  int64_t taken_ = 0;
  int64_t known_ = 0;  // messages whose results the leader has when it plans
  Served run_;
};

schedule::Costs RandomCosts(uint32_t seed) {
  std::mt19937 random(seed);
  const auto time = [&] { return absl::Microseconds(random() % 3000); };
  schedule::Costs costs;
  costs.compute = [seed](int32_t stage, MicroBatchId what) {
    return absl::Microseconds(
        100 +
        (seed * 7919 + stage * 104729 + what.step * 1299709 + what.micro_batch * 15485863) % 5000);
  };
  costs.hop = time();
  costs.token_hop = time();
  costs.sample = time() / 10 + absl::Microseconds(1);
  costs.planning = time();
  costs.orders_in_flight = 1 + static_cast<int32_t>(random() % 2);
  costs.overlap_sends = random() % 4 > 0;
  return costs;
}

class MixedSteps : public ::testing::TestWithParam<int> {
 protected:
  // Where `what` begins and ends in the timeline; every one stands there once.
  using Key = std::tuple<int32_t, Operation, int64_t, int32_t>;
  static Key KeyOf(int32_t stage, Operation operation, const MicroBatchId& what) {
    return {stage, operation, what.step, what.micro_batch};
  }

  void ExpectOrder(const Served& run, const schedule::Costs& costs,
                   const schedule::Timeline& timeline) const {
    const int32_t last = GetParam() - 1;
    std::map<Key, Interval> at;
    std::map<int32_t, absl::Duration> free;  // stages
    std::map<int32_t, std::vector<MicroBatchId>> computed;
    for (const Interval& interval : timeline.intervals) {
      ASSERT_GE(interval.begin, free[interval.stage]);
      free[interval.stage] = interval.end;
      if (interval.operation == Operation::kCompute) {
        computed[interval.stage].push_back(interval.what);
      }
      at[KeyOf(interval.stage, interval.operation, interval.what)] = interval;
    }
    for (int32_t stage = 0; stage <= last; ++stage) {
      ASSERT_EQ(computed[stage], run.micro_batches);
      for (size_t i = 0; i < run.micro_batches.size(); ++i) {
        const MicroBatchId& what = run.micro_batches[i];
        const absl::Duration begin = at.at(KeyOf(stage, Operation::kCompute, what)).begin;
        if (stage > 0) {
          ASSERT_GE(begin, at.at(KeyOf(stage - 1, Operation::kCompute, what)).end + costs.hop);
        }
        if (stage < last && i > 0 && what.micro_batch == 0) {  // the step before was flushed
          ASSERT_GE(begin,
                    at.at(KeyOf(stage + 1, Operation::kCompute, run.micro_batches[i - 1])).begin);
        }
      }
    }
    const absl::Duration token_hop = last == 0 ? absl::ZeroDuration() : costs.token_hop;
    for (const Feed& feed : run.feeds) {
      ASSERT_GE(at.at(KeyOf(0, Operation::kCompute, feed.after)).begin,
                at.at(KeyOf(last, Operation::kSample, feed.before)).end + token_hop);
    }
  }
};

TEST_P(MixedSteps, NeitherLockNorOvertake) {
  int mixed = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Served run = Leader(GetParam(), seed).Serve();
    ASSERT_FALSE(HasFatalFailure());
    const schedule::Costs costs = RandomCosts(seed);
    SKEIN_ASSERT_OK_AND_ASSIGN(const schedule::Timeline timeline,
                               schedule::Simulate(run.lists, costs));
    EXPECT_EQ(timeline.tokens_left, GetParam() == 1 ? 0 : run.untaken);
    ASSERT_NO_FATAL_FAILURE(ExpectOrder(run, costs, timeline));
    mixed += run.mixed;
  }
  EXPECT_GT(mixed, GetParam() == 1 ? -1 : kSeeds * kSteps / 10);  // it is what is tested
}

INSTANTIATE_TEST_SUITE_P(Stages, MixedSteps, ::testing::Range(1, 9));

}  // namespace
}  // namespace skein::worker

#include "parallel/pipeline/simulate.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/pipeline/test_schedules.h"

namespace skein::schedule {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kMs = absl::Milliseconds(1);
constexpr double kExact = 1e-12;

Costs Uniform(absl::Duration hop = absl::ZeroDuration()) {
  Costs costs;
  costs.compute = [](int32_t, MicroBatchId) { return kMs; };
  costs.hop = costs.token_hop = hop;
  return costs;
}

// 1 to 4 ms, without a pattern that would hide a mistake in an index.
absl::Duration Uneven(int32_t stage, MicroBatchId what) {
  return (1 + (stage * 7 + what.micro_batch * 5 + what.step * 3) % 4) * kMs;
}

// The same by the recurrence: a micro-batch begins when its data has come and the micro-batch
// before it has left the stage; the first of a step when the next stage has begun with the last of
// the step before (the flush).
std::vector<Interval> Recurrence(int32_t stages, int32_t micro_batches, int64_t steps,
                                 const Costs& costs) {
  const int64_t count = steps * micro_batches;  // both numbered through
  std::vector<std::vector<absl::Duration>> end(stages, std::vector<absl::Duration>(count));
  std::vector<std::vector<absl::Duration>> begin = end;
  for (int64_t i = 0; i < count; ++i) {
    for (int32_t stage = 0; stage < stages; ++stage) {
      absl::Duration& at = begin[stage][i];
      const bool last = stage == stages - 1;
      if (i > 0) at = end[stage][i - 1] + (last ? costs.sample : absl::ZeroDuration());
      if (stage > 0) at = std::max(at, end[stage - 1][i] + costs.hop);
      if (i % micro_batches == 0 && i > 0 && !last) at = std::max(at, begin[stage + 1][i - 1]);
      if (stage == 0 && i >= micro_batches && stages > 1) {
        at = std::max(at, end[stages - 1][i - micro_batches] + costs.sample + costs.token_hop);
      }
      end[stage][i] =
          at + costs.compute(stage, {i / micro_batches, static_cast<int32_t>(i % micro_batches)});
    }
  }
  std::vector<Interval> intervals;
  for (int32_t stage = 0; stage < stages; ++stage) {
    for (int64_t i = 0; i < count; ++i) {
      intervals.push_back({stage,
                           Operation::kCompute,
                           {i / micro_batches, static_cast<int32_t>(i % micro_batches)},
                           begin[stage][i],
                           end[stage][i]});
    }
  }
  return intervals;
}

std::vector<Interval> Computed(const Timeline& timeline) {
  std::vector<Interval> computed;
  for (const Interval& interval : timeline.intervals) {
    if (interval.operation == Operation::kCompute) computed.push_back(interval);
  }
  return computed;
}

void ExpectSame(const std::vector<Interval>& actual, const std::vector<Interval>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].stage, expected[i].stage);
    EXPECT_EQ(actual[i].what, expected[i].what);
    EXPECT_EQ(actual[i].begin, expected[i].begin) << "interval " << i;
    EXPECT_EQ(actual[i].end, expected[i].end) << "interval " << i;
  }
}

class Pipelines : public ::testing::TestWithParam<int> {
 protected:
  int32_t stages() const { return GetParam(); }
};

TEST_P(Pipelines, AgreeWithTheRecurrence) {
  for (int32_t micro_batches = 1; micro_batches <= 17; ++micro_batches) {
    for (const int64_t hop_us : {0, 300, 2500}) {
      for (const int32_t steps : {1, 2, 6}) {
        SCOPED_TRACE(testing::Message() << "micro-batches " << micro_batches << " hop " << hop_us
                                        << " us, steps " << steps);
        Costs costs = Uniform(absl::Microseconds(hop_us));
        costs.compute = Uneven;
        costs.token_hop = absl::Microseconds(hop_us / 2);
        costs.sample = absl::Microseconds(hop_us / 3);
        costs.orders_in_flight = steps;  // orders are there before they are needed
        SKEIN_ASSERT_OK_AND_ASSIGN(const Timeline timeline,
                                   Simulate(Decode(stages(), micro_batches, steps), costs));
        EXPECT_EQ(timeline.stages, stages());
        EXPECT_EQ(timeline.tokens_left, stages() == 1 ? 0 : micro_batches);
        ExpectSame(Computed(timeline), Recurrence(stages(), micro_batches, steps, costs));
        if (steps != 1) continue;
        costs.sample = absl::ZeroDuration();
        SKEIN_ASSERT_OK_AND_ASSIGN(const Timeline prefill,
                                   Simulate(Prefill(stages(), micro_batches), costs));
        ExpectSame(prefill.intervals, Recurrence(stages(), micro_batches, 1, costs));
      }
    }
  }
}

TEST_P(Pipelines, PrefillHasTheBubbleOfGPipe) {
  for (int32_t micro_batches = 1; micro_batches <= 17; ++micro_batches) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const Timeline timeline,
                               Simulate(Prefill(stages(), micro_batches), Uniform()));
    EXPECT_NEAR(BubbleFraction(timeline), (stages() - 1.0) / (micro_batches + stages() - 1),
                kExact);
  }
}

// All that the header says about steady decode, with 1 ms for a micro-batch. Where work binds, a
// stage ends the last micro-batch of a step M c after the step's begin; it arrives h later at the
// next stage, which is done with the one before by then, and takes it: only then the step is
// flushed and the next begins, on every stage alike, so that its period is M c + h.
TEST_P(Pipelines, DecodeSettlesAtTheSlowerOfWorkAndRing) {
  for (int32_t micro_batches = 1; micro_batches <= 17; ++micro_batches) {
    for (const double hop : {0.0, 0.03125, 0.125, 0.5, 1.5}) {  // exact in binary
      SKEIN_ASSERT_OK_AND_ASSIGN(const Timeline timeline,
                                 Simulate(Decode(stages(), micro_batches, 17), Uniform(hop * kMs)));
      const double ring = stages() * (1 + hop);
      const double period = stages() == 1 ? micro_batches : std::max(micro_batches + hop, ring);
      const SteadyState steady = FindSteadyState(timeline);
      EXPECT_EQ(steady.step_period, period * kMs) << micro_batches << " " << hop;
      EXPECT_NEAR(steady.bubble, 1 - micro_batches / period, kExact);
    }
  }
}

TEST_P(Pipelines, DecodeWithoutHopsIdlesInTheRampsOnly) {
  for (int32_t micro_batches = stages(); micro_batches <= 17; ++micro_batches) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const Timeline timeline,
                               Simulate(Decode(stages(), micro_batches, 5), Uniform()));
    EXPECT_NEAR(BubbleFraction(timeline), (stages() - 1.0) / (5 * micro_batches + stages() - 1),
                kExact);
  }
}

TEST_P(Pipelines, SendsThatWaitCostAHopEach) {
  for (int32_t micro_batches = 1; micro_batches <= 17; ++micro_batches) {
    Costs costs = Uniform(kMs / 4);
    const auto end = [&] {
      auto timeline = Simulate(Prefill(stages(), micro_batches), costs);
      EXPECT_THAT(timeline, IsOk());
      return timeline->intervals.back().end;
    };
    const absl::Duration ramp = (stages() - 1) * (kMs + costs.hop);
    EXPECT_EQ(end(), ramp + micro_batches * kMs);
    costs.overlap_sends = false;
    const int32_t waits = stages() > 1 ? micro_batches - 1 : 0;  // one stage sends nothing
    EXPECT_EQ(end(), ramp + micro_batches * kMs + waits * costs.hop);
  }
}

// A step waits for its order: the results of the step two before it, and planning.
TEST_P(Pipelines, PlanningHidesBehindTheStepBefore) {
  for (const int32_t micro_batches : {stages(), stages() + 1}) {
    for (const double planning : {0.0, 1.0, 2.0, 3.0, 8.0}) {
      for (const int32_t in_flight : {1, 2}) {
        Costs costs = Uniform();
        costs.planning = planning * kMs;
        costs.orders_in_flight = in_flight;
        SKEIN_ASSERT_OK_AND_ASSIGN(const Timeline timeline,
                                   Simulate(Decode(stages(), micro_batches, 17), costs));
        const double turn = (micro_batches + stages() - 1 + planning) / in_flight;
        EXPECT_EQ(FindSteadyState(timeline).step_period,
                  std::max({1.0 * micro_batches, turn, planning}) * kMs)
            << micro_batches << " micro-batches, " << in_flight << " orders, planning " << planning;
      }
    }
  }
}

// No list has an instruction that could be left out, or done twice, unnoticed.
TEST_P(Pipelines, EveryInstructionCounts) {
  const Schedule schedule = Decode(stages(), 3, 3);
  SKEIN_ASSERT_OK_AND_ASSIGN(const Timeline whole, Simulate(schedule, Uniform()));
  for (size_t order = 0; order < schedule.size(); ++order) {
    for (int32_t stage = 0; stage < stages(); ++stage) {
      for (size_t i = 0; i < schedule[order][stage].size(); ++i) {
        SCOPED_TRACE(ToString(schedule[order][stage][i]));
        Schedule missing = schedule, twice = schedule;
        auto& list = missing[order][stage];
        const Operation operation = list[i].operation;
        list.erase(list.begin() + i);
        twice[order][stage].insert(twice[order][stage].begin() + i, schedule[order][stage][i]);
        const auto without = Simulate(missing, Uniform());
        const auto doubled = Simulate(twice, Uniform());
        if (stages() > 1) {
          EXPECT_TRUE(!without.ok() || without->tokens_left > whole.tokens_left);
          EXPECT_FALSE(doubled.ok());
        } else if (operation == Operation::kCompute) {
          EXPECT_FALSE(without.ok());  // what it samples is not there
        } else {
          EXPECT_FALSE(doubled.ok());  // what it samples is gone
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, Pipelines, ::testing::Range(1, 9));

TEST(Simulate, NamesWhoWaitsForWhat) {
  // Stage 0 wants the tokens of a step before it has begun that step.
  const std::vector<MicroBatch> batches = {{{{0, 0}}, true}};
  EXPECT_THAT(
      Simulate({MakeOrder(3, 0, batches)}, Uniform()),
      StatusIs(
          absl::StatusCode::kFailedPrecondition,
          "deadlock: stage 0 waits to receive the tokens of step 0, micro-batch 0, from stage 2; "
          "stage 1 waits to receive the activations of step 0, micro-batch 0, from stage 0; "
          "stage 2 waits to receive the activations of step 0, micro-batch 0, from stage 1"));
}

TEST(Simulate, NamesWhoWaitsForAnOrder) {
  Schedule schedule = Prefill(2, 1);
  schedule[0][0].clear();  // stage 0 has nothing to do in the first order
  schedule.push_back(MakeOrder(2, 1, {}));
  Costs costs = Uniform();
  costs.orders_in_flight = 1;
  EXPECT_THAT(
      Simulate(schedule, costs),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               "deadlock: stage 0 waits for order 1, planned on the results of order 0; stage 1 "
               "waits to receive the activations of step 0, micro-batch 0, from stage 0"));
}

TEST(Simulate, TellsWhichMessageIsTheNext) {
  Schedule schedule = Decode(2, 2, 2);
  schedule[1] = MakeOrder(2, 1, {{{{0, 1}}, true}, {{{0, 0}}, true}});
  EXPECT_THAT(Simulate(schedule, Uniform()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "stage 0 cannot receive the tokens of step 0, micro-batch 1: the next "
                       "message from stage 1 is of step 0, micro-batch 0"));
}

// Sequences end and join, so that micro-batches are regrouped: what was sampled is still taken.
TEST(Simulate, CarriesOutRegroupedSteps) {
  const Schedule schedule = {
      MakeOrder(3, 0, {{{}, true}, {{}, true}, {{}, false}}),
      MakeOrder(3, 1, {{{{0, 0}, {0, 1}}, true}}),
      MakeOrder(3, 2, {{{}, false}, {{{1, 0}}, true}}),
  };
  SKEIN_ASSERT_OK_AND_ASSIGN(const Timeline timeline, Simulate(schedule, Uniform()));
  EXPECT_EQ(timeline.tokens_left, 1);
  EXPECT_EQ(timeline.intervals.size(), 3u * 6);
  // Step 1 waits for the second micro-batch of step 0, which leaves stage 2 at 4 ms; the chunk of
  // step 2 follows at once, and its other micro-batch waits for the tokens of step 1, sampled at 7.
  EXPECT_EQ(timeline.intervals[3].begin, 4 * kMs);
  EXPECT_EQ(timeline.intervals[4].begin, 5 * kMs);
  EXPECT_EQ(timeline.intervals[5].begin, 7 * kMs);
}

TEST(Simulate, TellsWhoLosesActivations) {
  Schedule schedule = Prefill(2, 2);
  schedule[0][1].resize(2);  // computes the first chunk only
  EXPECT_THAT(Simulate(schedule, Uniform()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "deadlock: stage 0 waits to flush the activations of step 0, micro-batch 1, "
                       "to stage 1"));
  schedule[0][0].pop_back();
  EXPECT_THAT(Simulate(schedule, Uniform()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "stage 0 ends a step and never flushes the activations of step 0, "
                       "micro-batch 1"));
  schedule[0][0].pop_back();
  EXPECT_THAT(Simulate(schedule, Uniform()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "stage 0 ends a step and never sends the activations of step 0, "
                       "micro-batch 1"));
}

// A step ends when its last activations are taken: 1 ms on the way, and behind 3 ms of computing.
TEST(Simulate, AFlushWaitsUntilTheNextStageBegins) {
  Costs costs = Uniform(kMs);
  costs.compute = [](int32_t stage, MicroBatchId) { return (1 + 2 * stage) * kMs; };
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const Timeline timeline,
      Simulate({MakeOrder(2, 0, {{{}, false}, {{}, false}}), MakeOrder(2, 1, {{{}, false}})},
               costs));
  ASSERT_EQ(timeline.intervals.size(), 6u);
  EXPECT_EQ(timeline.intervals[1].end, 2 * kMs);
  EXPECT_EQ(timeline.intervals[2].begin, 5 * kMs);  // stage 1 computes from 2 to 5 to 8
}

TEST(Simulate, RefusesWhatAStageCannotDo) {
  struct Case {
    int32_t stages, stage;
    Operation operation;
    const char* why;
  };
  for (const Case& c :
       std::vector<Case>{{2, 0, Operation::kReceiveActivations, "the first stage receives none"},
                         {2, 1, Operation::kReceiveTokens, "only the first of several stages"},
                         {1, 0, Operation::kReceiveTokens, "only the first of several stages"},
                         {2, 1, Operation::kCompute, "its activations are not there"},
                         {2, 0, Operation::kSendActivations, "they are not computed"},
                         {2, 1, Operation::kSendActivations, "the last stage sends none"},
                         {2, 0, Operation::kSample, "only the last stage samples"},
                         {2, 1, Operation::kSample, "it is not computed"},
                         {2, 0, Operation::kFlush, "they are not those sent last"},
                         {2, 1, Operation::kFlush, "the last stage sends none"},
                         {2, 0, Operation::kSendTokens, "only the last of several stages"},
                         {2, 1, Operation::kSendTokens, "they are not sampled"},
                         {1, 0, Operation::kSendTokens, "only the last of several stages"}}) {
    Order order(c.stages);
    order[c.stage] = {{c.operation, {4, 2}}};
    EXPECT_THAT(Simulate({order}, Uniform()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("step 4, micro-batch 2"), HasSubstr(c.why))));
  }
  EXPECT_THAT(Simulate({Order(2), Order(3)}, Uniform()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("3 stages, the first one")));
  Costs none = Uniform();
  none.orders_in_flight = 0;
  EXPECT_THAT(Simulate(Prefill(1, 1), none),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("orders_in_flight is 0")));
}

TEST(Simulate, CountsTheBuffersThatSendersNeed) {
  Costs slow_end = Uniform();
  slow_end.compute = [](int32_t stage, MicroBatchId) { return (1 + stage) * kMs; };
  // Sent at 1, 2, 3, 4 ms, taken at 1, 3, 5, 7.
  SKEIN_ASSERT_OK_AND_ASSIGN(const Timeline prefill, Simulate(Prefill(2, 4), slow_end));
  EXPECT_EQ(prefill.buffered_messages, 2);
  // Tokens wait for stage 0 while it computes the rest of their step.
  for (const int32_t micro_batches : {1, 4, 5, 8}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const Timeline decode,
                               Simulate(Decode(4, micro_batches, 6), Uniform()));
    EXPECT_EQ(decode.buffered_messages, std::max(1, micro_batches - 4));
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(const Timeline alone, Simulate(Decode(1, 4, 6), Uniform()));
  EXPECT_EQ(alone.buffered_messages, 0);
}

TEST(Simulate, NothingTakesNoTime) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Timeline timeline, Simulate({}, Uniform()));
  EXPECT_EQ(BubbleFraction(timeline), 0);
  EXPECT_EQ(FindSteadyState(timeline).step_period, absl::ZeroDuration());
}

}  // namespace
}  // namespace skein::schedule

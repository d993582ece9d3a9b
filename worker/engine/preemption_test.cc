// Tests who gives way when pages run out, and how it comes back: swapped or computed again, in a
// slot that it is given anew.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "worker/engine/replica_state.h"
#include "worker/engine/replica_test_util.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr PreemptionRates kSwapIsCheap{.prefill_tokens_per_s = 1, .swap_pages_per_s = 1e6};

TEST(PreemptionTest, TheNewestGivesWayAndComesBack) {
  for (const bool swap : {false, true}) {
    SCOPED_TRACE(swap);
    ReplicaLimits limits = Limits();
    limits.pages = 6;
    if (swap) {
      limits.swap_pages = 6;
      limits.rates = kSwapIsCheap;
    }
    Replica replica(limits);
    replica.Add(Request(1, {1, 2, 3, 4, 5, 6, 7}, 14));
    replica.now += absl::Milliseconds(5);
    replica.Add(Request(2, {11, 12, 13, 14, 15, 16, 17}, 14));
    std::map<uint64_t, int> tokens;
    int copies = 0;
    for (int step = 0; step < 100 && !replica.state.idle(); ++step) {
      const StepOrder order = replica.Step();
      copies += static_cast<int>(order.copies.size());
      for (const serving::AnswerOutput& output : replica.state.TakeReport().answers) {
        tokens[output.request_id.value()] += static_cast<int>(output.tokens.size());
      }
    }
    EXPECT_EQ(tokens[1], 14);
    EXPECT_EQ(tokens[2], 14);
    const serving::ReplicaLoad load = replica.state.TakeReport().load;
    EXPECT_EQ(load.preemptions_swapped > 0, swap);
    EXPECT_EQ(load.preemptions_recomputed > 0, !swap);
    EXPECT_EQ(copies > 0, swap);
    EXPECT_EQ(load.used_pages, 0);
    EXPECT_EQ(load.free_swap_pages, load.total_swap_pages);
  }
}

// Two pages of a sequence are in the swap pool, and its next token is still on its way.
class SwappedOutTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(SwappedOutTest, ASequenceThatEndsWhileItIsSwappedOutGivesItsSwapPagesBack) {
  struct Case {
    std::string name;
    std::function<void(Replica&, const StepOrder& in_flight)> end;
  };
  const auto fail = [](Replica& replica, const StepOrder& in_flight) {
    const int32_t slot = in_flight.micro_batches[0][0].slot;
    SKEIN_ASSERT_OK(replica.state.Apply(
        {.step = in_flight.step, .sampled = {{.slot = slot, .error = "a logit is NaN"}}},
        absl::Milliseconds(1)));
  };
  const Case cases[] = {
      {"cancelled",
       [](Replica& replica, const StepOrder&) { replica.state.Cancel(serving::RequestId(1)); }},
      {"its answer alone cancelled",
       [](Replica& replica, const StepOrder&) { replica.state.Cancel(serving::RequestId(1), 0); }},
      {"all forgotten", [](Replica& replica, const StepOrder&) { replica.state.CancelAll(); }},
      {"ended by its text",
       [](Replica& replica, const StepOrder& order) { replica.Finish(order, kEosId); }},
      {"failed", fail}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ReplicaLimits limits = Limits();
    limits.max_num_seqs = 1;
    limits.swap_pages = 3;
    limits.rates = kSwapIsCheap;
    limits.scheduler.window = GetParam();
    Replica replica(limits);
    std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6};
    if (limits.scheduler.window > 0) prompt.resize(14, 7);  // two of four pages are given back
    replica.Add(Request(1, prompt, 20));
    for (size_t rows = 0; rows < prompt.size(); rows += 8) replica.Step();
    const StepOrder in_flight = replica.Next();
    serving::Request urgent = Request(2, {11}, 2);
    urgent.priority = 100;
    replica.Add(urgent);
    const StepOrder swaps = replica.Next();
    ASSERT_THAT(swaps.copies, SizeIs(2));
    const serving::ReplicaLoad held = replica.state.TakeReport().load;
    ASSERT_EQ(held.preemptions_swapped, 1);
    ASSERT_EQ(held.free_swap_pages, 1);

    c.end(replica, in_flight);
    const StepReport report = replica.state.TakeReport();
    EXPECT_EQ(report.load.free_swap_pages, 3);
    EXPECT_EQ(report.load.waiting, 0);
    for (const serving::AnswerOutput& output : report.answers) {
      EXPECT_NE(output.finish, serving::Finish::kNotFinished);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, SwappedOutTest, ::testing::Values(0, 5));

// The request waited at another replica, or in the coordinator's queue.
TEST(PreemptionTest, WhoeverHasWaitedElsewhereIsNotTheNewest) {
  for (const bool waited : {false, true}) {
    SCOPED_TRACE(waited);
    ReplicaLimits limits = Limits();
    limits.pages = 6;
    Replica replica(limits);
    serving::Request here = Request(1, {1, 2, 3, 4, 5, 6, 7}, 14);
    here.priority = 1;
    replica.Add(here);
    replica.Step();
    serving::Request moved = Request(2, {11, 12, 13, 14, 15, 16, 17}, 14);
    if (waited) moved.waited = 2 * limits.scheduler.aging;
    replica.Add(moved);
    for (int step = 0; step < 100 && !replica.state.idle(); ++step) replica.Step();
    const StepReport report = replica.state.TakeReport();
    EXPECT_EQ(report.answers.back().request_id.value(), waited ? 1 : 2);
    EXPECT_GT(report.load.preemptions_recomputed, 0);
  }
}

// Pages cost as much to swap as their tokens to compute at 100 tokens/s.
TEST(PreemptionTest, WhatPrefillTookDecidesBetweenSwapAndRecompute) {
  struct Case {
    double guess;
    std::vector<absl::Duration> prefills;  // of 64 tokens each
    bool swaps;
  };
  const Case cases[] = {
      // This replica has observed nothing.
      {10, {}, true},
      {1000, {}, false},
      // The first observation takes the guess's place, and each later one counts for a fifth.
      {1e9, {absl::Seconds(1)}, true},
      {1, {absl::Milliseconds(1)}, false},
      {1, {absl::Seconds(1), absl::Milliseconds(400)}, true},
      {1, {absl::Seconds(1), absl::Milliseconds(200)}, false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.guess);
    SCOPED_TRACE(c.prefills.size());
    ReplicaLimits limits = Limits();
    limits.scheduler.max_num_batched_tokens = limits.scheduler.max_micro_batch_rows = 64;
    limits.pages = limits.swap_pages = 18;
    limits.context_length = 72;
    limits.rates = {.prefill_tokens_per_s = c.guess, .swap_pages_per_s = 50};
    Replica replica(limits);
    int32_t next = 10;  // the prompts differ: no hit makes them shorter
    for (const absl::Duration duration : c.prefills) {
      replica.Add(Request(next, std::vector<int32_t>(64, next), 1));
      ++next;
      replica.Finish(replica.Next(), 50, duration);
    }
    replica.Add(Request(1, std::vector<int32_t>(32, 1), 20));
    replica.Step();
    replica.Step();
    serving::Request urgent = Request(2, std::vector<int32_t>(60, 2), 2);
    urgent.priority = 100;
    replica.Add(urgent);
    replica.Step();
    const serving::ReplicaLoad load = replica.state.TakeReport().load;
    EXPECT_EQ(load.preemptions_swapped, c.swaps ? 1 : 0);
    EXPECT_EQ(load.preemptions_recomputed, c.swaps ? 0 : 1);
  }
}

TEST(PreemptionTest, SamplesThatWaitForAPromptThatGaveWayHoldNoSlots) {
  ReplicaLimits limits = Limits();
  limits.max_num_seqs = 4;
  limits.pages = 40;
  Replica replica(limits);
  serving::Request many = Request(1, std::vector<int32_t>(18, 5), 3);
  many.answers = {{.index = 0}, {.index = 1}, {.index = 2}, {.index = 3}};
  replica.Add(many);
  replica.Step();  // in the middle of the prompt
  serving::Request urgent = Request(2, {1, 2}, 2);
  urgent.priority = 100;
  replica.Add(urgent);
  serving::Request two = Request(3, {3, 4}, 2);
  two.priority = 100;
  two.answers = {{.index = 0}, {.index = 1}};
  replica.Add(two);
  std::map<uint64_t, int> tokens;
  for (int step = 0; step < 50 && !replica.state.idle(); ++step) {
    replica.Step();
    for (const serving::AnswerOutput& output : replica.state.TakeReport().answers) {
      tokens[output.request_id.value()] += static_cast<int>(output.tokens.size());
    }
  }
  EXPECT_TRUE(replica.state.idle());
  EXPECT_EQ(tokens[1], 12);
  EXPECT_EQ(tokens[2], 2);
  EXPECT_EQ(tokens[3], 4);
  EXPECT_GT(replica.state.TakeReport().load.preemptions_recomputed, 0);
}

// A sequence that gave way is started again, with all that is known of it by then: its draws go on
// at their position, also mirostat's, and another sequence had its slot meanwhile.
TEST(PreemptionTest, WhoeverGaveWayIsStartedAgainWithWhatWasDrawn) {
  for (const bool swap : {false, true}) {
    SCOPED_TRACE(swap);
    ReplicaLimits limits = Limits();
    limits.max_num_seqs = 1;
    if (swap) {
      limits.swap_pages = 3;
      limits.rates = kSwapIsCheap;
    }
    Replica replica(limits);
    serving::Request request = Request(1, {1, 2, 3, 4, 5, 6}, 20);
    request.sampling.mirostat_tau = 4;
    replica.Add(request);
    const auto finish = [&](const StepOrder& order, int32_t token, float mu) {
      SKEIN_ASSERT_OK(replica.state.Apply({.step = order.step,
                                           .sampled = {{.slot = order.micro_batches[0][0].slot,
                                                        .tokens = {{.id = token, .mu = mu}}}}},
                                          absl::Milliseconds(1)));
    };
    const StepOrder first = replica.Next();
    EXPECT_FALSE(first.starts[0].mu.has_value());
    finish(first, 61, 7.5f);
    const StepOrder on_its_way = replica.Next();
    serving::Request urgent = Request(2, {11}, 1);
    urgent.priority = 100;
    replica.Add(urgent);
    const StepOrder other = replica.Next();
    ASSERT_THAT(other.starts, SizeIs(1));
    EXPECT_EQ(other.starts[0].slot, first.starts[0].slot);
    EXPECT_THAT(other.starts[0].prompt, ElementsAre(11));
    EXPECT_FALSE(replica.HasNext());  // its last token is not known yet
    finish(on_its_way, 62, 6.5f);
    finish(other, 50, 0);
    const StepOrder again = replica.Next();
    ASSERT_THAT(again.starts, SizeIs(1));
    EXPECT_THAT(again.starts[0].prompt, ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_THAT(again.starts[0].output, ElementsAre(61, 62));
    EXPECT_EQ(again.starts[0].mu, 6.5f);
    EXPECT_EQ(again.micro_batches[0][0].tokens.back(), 62);
    EXPECT_EQ(replica.Begins(again)[0][0], swap ? 7 : 4);  // what the prefix cache has kept
  }
}

}  // namespace
}  // namespace skein::worker

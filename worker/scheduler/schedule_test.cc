#include "worker/scheduler/schedule.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/scheduler/test_views.h"

namespace skein::worker {

void PrintTo(const Chunk& c, std::ostream* out) {
  *out << "{" << c.id << ", " << c.begin << ", " << c.count << (c.draws ? ", true}" : ", false}");
}
void PrintTo(const Preemption& p, std::ostream* out) {
  *out << "{" << p.id << (p.swap ? ", swap}" : ", recompute}");
}

namespace {

using ::testing::IsEmpty;

// Ids are plain numbers in the tables of cases.
struct PreemptionRow {
  int64_t id = 0;
  bool swap = false;
};

struct ChunkRow {
  int64_t id = 0;
  int64_t begin = 0;
  int64_t count = 0;
  bool draws = false;
};

struct Case {
  std::string name;
  std::vector<SequenceView> running;
  std::vector<SequenceView> waiting;
  std::vector<PreemptionRow> preemptions;
  std::vector<int64_t> admissions;
  std::vector<ChunkRow> chunks;  // one micro-batch after the other
  // What a row does not say is plenty.
  int64_t free_pages = 1000;
  int32_t free_slots = 100;
  int64_t max_num_batched_tokens = 64;
  absl::Duration aging = absl::InfiniteDuration();
  int64_t free_swap_pages = 0;
  PreemptionRates rates = {};
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::string TestName(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name;
  std::replace_if(name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

class ScheduleTest : public ::testing::TestWithParam<Case> {};

TEST_P(ScheduleTest, GivesThePlan) {
  const Case& c = GetParam();
  const SchedulerLimits limits = {.max_num_batched_tokens = c.max_num_batched_tokens,
                                  .micro_batches = 1,
                                  .max_micro_batch_rows = 1000,
                                  .page_size = kPage,
                                  .aging = c.aging};
  std::vector<Preemption> preemptions;
  for (const auto& [id, swap] : c.preemptions) preemptions.push_back({SequenceId(id), swap});
  const std::vector<SequenceId> admissions(c.admissions.begin(), c.admissions.end());
  std::vector<Chunk> want;
  for (const auto& [id, begin, count, draws] : c.chunks) {
    want.push_back(Part(id, begin, count, draws));
  }
  // The order in the snapshot means nothing.
  for (const bool reversed : {false, true}) {
    std::vector<SequenceView> waiting = c.waiting, running = c.running;
    if (reversed) std::reverse(waiting.begin(), waiting.end());
    if (reversed) std::reverse(running.begin(), running.end());
    const StepPlan plan = Schedule({.now = At(100),
                                    .waiting = waiting,
                                    .running = running,
                                    .free_slots = c.free_slots,
                                    .free_pages = c.free_pages,
                                    .free_swap_pages = c.free_swap_pages,
                                    .rates = c.rates},
                                   limits);
    std::vector<Chunk> chunks;
    for (const auto& batch : plan.micro_batches) {
      EXPECT_THAT(batch, ::testing::Not(IsEmpty()));
      chunks.insert(chunks.end(), batch.begin(), batch.end());
    }
    EXPECT_EQ(plan.preemptions, preemptions);
    EXPECT_EQ(plan.admissions, admissions);
    EXPECT_EQ(chunks, want);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Order, ScheduleTest,
    ::testing::Values(Case{.name = "nothing to do"},
                      Case{.name = "id decides last",
                           .waiting = {Ranks(Prompt(2, 3), 0),
                                       [] {
                                         SequenceView view = Prompt(1, 3);
                                         view.arrival = At(2);
                                         return view;
                                       }()},
                           .admissions = {1, 2},
                           .chunks = {{1, 0, 3, true}, {2, 0, 3, true}}},
                      Case{.name = "then arrival",
                           .waiting = {Prompt(1, 3), Prompt(2, 3)},
                           .admissions = {1, 2},
                           .chunks = {{1, 0, 3, true}, {2, 0, 3, true}}},
                      Case{
                          .name = "deadline before arrival",
                          .waiting = {Prompt(1, 3), Due(Prompt(2, 3), 120), Due(Prompt(3, 3), 110)},
                          .admissions = {3, 2, 1},
                          .chunks = {{3, 0, 3, true}, {2, 0, 3, true}, {1, 0, 3, true}}},
                      Case{.name = "priority before deadline",
                           .waiting = {Due(Prompt(1, 3), 110), Ranks(Prompt(2, 3), 1)},
                           .admissions = {2, 1},
                           .chunks = {{2, 0, 3, true}, {1, 0, 3, true}}},
                      Case{.name = "waiting makes up for priority",  // 99 s and 9.9; 80 s and 8 + 1
                           .waiting = {Prompt(1, 3), Ranks(Prompt(20, 3), 1)},
                           .admissions = {1, 20},
                           .chunks = {{1, 0, 3, true}, {20, 0, 3, true}},
                           .aging = absl::Seconds(10)},
                      Case{.name = "waiting too short does not",  // 9.9 rounds down; 81 s, 8 + 2
                           .waiting = {Prompt(1, 3), Ranks(Prompt(19, 3), 2)},
                           .admissions = {19, 1},
                           .chunks = {{19, 0, 3, true}, {1, 0, 3, true}},
                           .aging = absl::Seconds(10)},
                      Case{.name = "the running stand in it too",
                           .running = {Prompt(1, 40), Ranks(Prompt(2, 40), 1)},
                           .chunks = {{2, 0, 40, true}, {1, 0, 24, false}}}),
    TestName);

INSTANTIATE_TEST_SUITE_P(
    Budget, ScheduleTest,
    ::testing::Values(Case{.name = "decodes first a prompt takes the rest",
                           .running = {Prompt(1, 70), Decode(2, 5)},
                           .chunks = {{2, 4, 1, true}, {1, 0, 63, false}}},
                      Case{.name = "a prompt goes on",
                           .running = {Running(1, 70, 63)},
                           .chunks = {{1, 63, 7, true}}},
                      Case{.name = "prompts in order",
                           .running = {Prompt(1, 40), Prompt(2, 40)},
                           .chunks = {{1, 0, 40, true}, {2, 0, 24, false}}},
                      Case{.name = "running prompts before admissions in order",
                           .running = {Prompt(3, 40)},
                           .waiting = {Prompt(1, 20), Prompt(2, 20)},
                           .admissions = {1, 2},
                           .chunks = {{3, 0, 40, true}, {1, 0, 20, true}, {2, 0, 4, false}}},
                      Case{.name = "decodes beyond it wait",
                           .running = {Decode(1, 5), Decode(2, 5), Decode(3, 5)},
                           .chunks = {{1, 4, 1, true}, {2, 4, 1, true}},
                           .max_num_batched_tokens = 2},
                      Case{.name = "nobody is admitted without a row",
                           .running = {Prompt(1, 70)},
                           .waiting = {Prompt(2, 3)},
                           .chunks = {{1, 0, 64, false}}},
                      Case{.name = "but before a prompt that it outranks",
                           .running = {Prompt(1, 70)},
                           .waiting = {Ranks(Prompt(2, 3), 1), Prompt(3, 3)},
                           .admissions = {2},
                           .chunks = {{1, 0, 64, false}}},
                      Case{.name = "not before decodes that it outranks",
                           .running = {Decode(1, 5), Decode(2, 5)},
                           .waiting = {Ranks(Prompt(3, 3), 1)},
                           .chunks = {{1, 4, 1, true}, {2, 4, 1, true}},
                           .max_num_batched_tokens = 2}),
    TestName);

INSTANTIATE_TEST_SUITE_P(
    Pages, ScheduleTest,
    ::testing::Values(Case{.name = "a page with room needs none",
                           .running = {Decode(1, 16), Decode(2, 10)},
                           .chunks = {{1, 15, 1, true}, {2, 9, 1, true}},
                           .free_pages = 0},
                      Case{.name = "a full one needs one more",
                           .running = {Decode(1, 17), Decode(2, 10)},
                           .chunks = {{1, 16, 1, true}, {2, 9, 1, true}},
                           .free_pages = 1},
                      Case{.name = "the last one gives way",
                           .running = {Decode(1, 17), Decode(2, 10), Decode(3, 10)},
                           .preemptions = {{3, false}},
                           .chunks = {{1, 16, 1, true}, {2, 9, 1, true}},
                           .free_pages = 0},
                      Case{.name = "as many as it takes",
                           .running = {Prompt(1, 33), Decode(2, 10), Decode(3, 10), Decode(4, 10)},
                           .preemptions = {{4, false}, {3, false}},
                           .chunks = {{2, 9, 1, true}, {1, 0, 33, true}},
                           .free_pages = 1},
                      Case{.name = "the one that asks gives way before one ahead",
                           .running = {Decode(1, 10), Decode(2, 17)},
                           .preemptions = {{2, false}},
                           .chunks = {{1, 9, 1, true}},
                           .free_pages = 0},
                      Case{.name = "the order decides who is last",
                           .running = {Decode(1, 17), Ranks(Decode(2, 17), 1)},
                           .preemptions = {{1, false}},
                           .chunks = {{2, 16, 1, true}},
                           .free_pages = 0},
                      Case{.name = "a copy needs a page",
                           .running = {Copies(Decode(1, 10)), Decode(2, 10)},
                           .preemptions = {{2, false}},
                           .chunks = {{1, 9, 1, true}},
                           .free_pages = 0},
                      Case{.name = "a copy besides new pages",
                           .running = {Copies(Running(1, 30, 10)), Decode(2, 10)},
                           .preemptions = {{2, false}},
                           .chunks = {{1, 10, 20, true}},
                           .free_pages = 1},
                      Case{.name = "who gets no row asks for none",
                           .running = {Decode(1, 10), Copies(Decode(2, 17))},
                           .chunks = {{1, 9, 1, true}},
                           .free_pages = 0,
                           .max_num_batched_tokens = 1},
                      Case{.name = "shared ones come free in the next step only",
                           .running = {Decode(1, 17), Own(Decode(2, 10), 0)},
                           .preemptions = {{2, false}},
                           .free_pages = 0},
                      Case{.name = "the first never gives way for itself",
                           .running = {Decode(1, 17)},
                           .free_pages = 0}),
    TestName);

// Beside Decode(9, 10), one page of whose growth is spared.
INSTANTIATE_TEST_SUITE_P(Admission, ScheduleTest,
                         ::testing::Values(Case{.name = "a prompt needs its length and growth",
                                                .running = {Decode(9, 10)},
                                                .waiting = {Prompt(1, 70)},
                                                .admissions = {1},
                                                .chunks = {{9, 9, 1, true}, {1, 0, 63, false}},
                                                .free_pages = 5 + 1 + 1},
                                           Case{.name = "else it waits",
                                                .running = {Decode(9, 10)},
                                                .waiting = {Prompt(1, 70)},
                                                .chunks = {{9, 9, 1, true}},
                                                .free_pages = 5 + 1},
                                           Case{.name = "what a running prompt lacks is spared",
                                                .running = {Prompt(9, 40)},
                                                .waiting = {Prompt(1, 10)},
                                                .chunks = {{9, 0, 40, true}},
                                                .free_pages = 3 + 1 + 1},
                                           Case{.name = "alone it needs its length only",
                                                .waiting = {Prompt(1, 32), Prompt(2, 3)},
                                                .admissions = {1},
                                                .chunks = {{1, 0, 32, true}},
                                                .free_pages = 2},
                                           Case{.name = "a hit is not computed",
                                                .running = {Decode(9, 10)},
                                                .waiting = {Hit(Prompt(1, 40), 2, 0)},
                                                .admissions = {1},
                                                .chunks = {{9, 9, 1, true}, {1, 32, 8, true}},
                                                .free_pages = 1 + 1 + 1},
                                           Case{.name = "idle pages of a hit leave the free ones",
                                                .running = {Decode(9, 10)},
                                                .waiting = {Hit(Prompt(1, 40), 2, 2)},
                                                .chunks = {{9, 9, 1, true}},
                                                .free_pages = 1 + 1 + 1 + 1},
                                           Case{.name = "idle pages of a hit fit",
                                                .running = {Decode(9, 10)},
                                                .waiting = {Hit(Prompt(1, 40), 2, 2)},
                                                .admissions = {1},
                                                .chunks = {{9, 9, 1, true}, {1, 32, 8, true}},
                                                .free_pages = 2 + 1 + 1 + 1},
                                           Case{.name = "nobody overtakes",
                                                .running = {Decode(9, 10)},
                                                .waiting = {Prompt(1, 70), Prompt(2, 3)},
                                                .chunks = {{9, 9, 1, true}},
                                                .free_pages = 5},
                                           Case{.name = "only the pending are passed over",
                                                .waiting = {Pending(Prompt(1, 5)), Prompt(2, 3)},
                                                .admissions = {2},
                                                .chunks = {{2, 0, 3, true}}},
                                           Case{.name = "each takes a slot",
                                                .waiting = {Prompt(1, 3), Prompt(2, 3)},
                                                .admissions = {1},
                                                .chunks = {{1, 0, 3, true}},
                                                .free_slots = 1},
                                           Case{.name = "answers take as many",
                                                .waiting = {Slots(Prompt(1, 3), 4), Prompt(2, 3)},
                                                .admissions = {1},
                                                .chunks = {{1, 0, 3, true}},
                                                .free_slots = 4},
                                           Case{.name = "answers wait for all their slots",
                                                .waiting = {Slots(Prompt(1, 3), 4), Prompt(2, 3)},
                                                .free_slots = 3},
                                           Case{.name = "answers grow by a page each",
                                                .running = {Decode(9, 10)},
                                                .waiting = {Slots(Prompt(1, 3), 4)},
                                                .chunks = {{9, 9, 1, true}},
                                                .free_pages = 1 + 1 + 3},
                                           Case{.name = "the swapped go on where they were",
                                                .running = {Decode(9, 10)},
                                                .waiting = {Swapped(Decode(1, 34))},
                                                .admissions = {1},
                                                .chunks = {{1, 33, 1, true}, {9, 9, 1, true}},
                                                .free_pages = 3 + 1 + 1},
                                           Case{.name = "the swapped need their pages",
                                                .running = {Decode(9, 10)},
                                                .waiting = {Swapped(Decode(1, 34))},
                                                .chunks = {{9, 9, 1, true}},
                                                .free_pages = 3 + 1},
                                           Case{.name = "nobody overtakes one that just gave way",
                                                .running = {Decode(1, 17), Decode(3, 70)},
                                                .waiting = {Prompt(4, 3)},
                                                .preemptions = {{3, false}},
                                                .chunks = {{1, 16, 1, true}},
                                                .free_pages = 0}),
                         TestName);

INSTANTIATE_TEST_SUITE_P(
    Precedence, ScheduleTest,
    ::testing::Values(
        Case{.name = "a higher priority takes the last ones slot",
             .running = {Decode(1, 5), Decode(2, 5)},
             .waiting = {Ranks(Prompt(3, 3), 1)},
             .preemptions = {{2, false}},
             .admissions = {3},
             .chunks = {{1, 4, 1, true}, {3, 0, 3, true}},
             .free_slots = 0},
        Case{.name = "and its row",
             .running = {Decode(1, 5), Decode(2, 5)},
             .waiting = {Ranks(Prompt(3, 3), 1)},
             .preemptions = {{2, false}},
             .admissions = {3},
             .chunks = {{1, 4, 1, true}, {3, 0, 1, false}},
             .free_slots = 0,
             .max_num_batched_tokens = 2},
        Case{.name = "and its pages",
             .running = {Decode(1, 5), Decode(2, 80)},
             .waiting = {Ranks(Prompt(3, 30), 1)},
             .preemptions = {{2, false}},
             .admissions = {3},
             .chunks = {{1, 4, 1, true}, {3, 0, 30, true}},
             .free_pages = 1},
        Case{.name = "two take two",
             .running = {Decode(1, 5), Decode(2, 5), Decode(3, 5)},
             .waiting = {Ranks(Prompt(4, 3), 1), Ranks(Prompt(5, 3), 2)},
             .preemptions = {{3, false}, {2, false}},
             .admissions = {5, 4},
             .chunks = {{1, 4, 1, true}, {5, 0, 3, true}, {4, 0, 3, true}},
             .free_slots = 0},
        Case{.name = "an earlier arrival does not",
             .running = {Decode(2, 5)},
             .waiting = {Prompt(1, 3)},
             .chunks = {{2, 4, 1, true}},
             .free_slots = 0},
        Case{.name = "a deadline does not",
             .running = {Decode(1, 5)},
             .waiting = {Due(Prompt(2, 3), 101)},
             .chunks = {{1, 4, 1, true}},
             .free_slots = 0},
        Case{.name = "long waiting does",
             .running = {Ranks(Decode(90, 5), 1)},
             .waiting = {Prompt(2, 3)},
             .preemptions = {{90, false}},
             .admissions = {2},
             .chunks = {{2, 0, 3, true}},
             .free_slots = 0,
             .aging = absl::Seconds(10)},
        Case{.name = "nobody gives way in vain",
             .running = {Ranks(Decode(1, 100), 2), Decode(2, 40)},
             .waiting = {Ranks(Prompt(3, 70), 1)},
             .chunks = {{1, 99, 1, true}, {2, 39, 1, true}},
             .free_pages = 2},
        Case{.name = "pages shared with those that give way are taken too",
             .running = {Ranks(Decode(1, 5), 1), Decode(2, 130)},  // 2 holds 9, of them 8 cached
             .waiting = {Ranks(Hit(Prompt(3, 130), 8, 0), 1)},     // needs 8, 1 and 1; spared 1
             .chunks = {{1, 4, 1, true}, {2, 129, 1, true}},
             .free_pages = 1,
             .free_slots = 0},
        Case{.name = "pages shared with those that give way fit",
             .running = {Ranks(Decode(1, 5), 1), Decode(2, 130)},
             .waiting = {Ranks(Hit(Prompt(3, 130), 8, 0), 1)},
             .preemptions = {{2, false}},
             .admissions = {3},
             .chunks = {{1, 4, 1, true}, {3, 128, 2, true}},
             .free_pages = 2,
             .free_slots = 0},
        Case{.name = "so are those that one admitted before shares with them",
             .running = {Decode(1, 130)},  // 9 pages, 8 of them cached
             .waiting = {Ranks(Hit(Prompt(2, 130), 8, 0), 2), Ranks(Prompt(3, 40), 1)},
             .admissions = {2},
             .chunks = {{1, 129, 1, true}, {2, 128, 2, true}},
             .free_pages = 4,  // and 1 comes free; 1 and 1 are for 2, 3 and 1 for 3
             .free_slots = 1},
        Case{.name = "and both fit",
             .running = {Decode(1, 130)},
             .waiting = {Ranks(Hit(Prompt(2, 130), 8, 0), 2), Ranks(Prompt(3, 40), 1)},
             .preemptions = {{1, false}},
             .admissions = {2, 3},
             .chunks = {{2, 128, 2, true}, {3, 0, 40, true}},
             .free_pages = 5,
             .free_slots = 1},
        Case{.name = "of answers that share pages one goes after the other",
             .running = {Own(Decode(1, 90), 0), Own(Decode(2, 90), 0), Own(Decode(3, 90), 0)},
             .waiting = {Ranks(Prompt(4, 40), 1)},
             .preemptions = {{3, false}},
             .chunks = {{1, 89, 1, true}, {2, 89, 1, true}},
             .free_pages = 2}),
    TestName);

// Decode(2, 33) gives way: 2 pages, 32 tokens, which take a second to compute.
Case SwapCase(std::string name, int64_t free_swap_pages, double swap_pages_per_s, bool swap) {
  return {.name = std::move(name),
          .running = {Decode(1, 17), Decode(2, 33)},
          .preemptions = {{2, swap}},
          .chunks = {{1, 16, 1, true}},
          .free_pages = 0,
          .free_swap_pages = free_swap_pages,
          .rates = {.prefill_tokens_per_s = 32, .swap_pages_per_s = swap_pages_per_s}};
}

INSTANTIATE_TEST_SUITE_P(
    Swap, ScheduleTest,
    ::testing::Values(SwapCase("cheaper than computing", 2, 4.1, true),
                      SwapCase("dearer than computing", 2, 3.9, false),
                      SwapCase("as dear as computing", 2, 4, false),
                      SwapCase("no room in the pool", 1, 100, false),
                      Case{.name = "the pool fills",
                           .running = {Prompt(1, 48), Decode(2, 20), Decode(3, 20)},
                           .preemptions = {{3, true}, {2, false}},
                           .chunks = {{1, 0, 48, true}},
                           .free_pages = 0,
                           .free_swap_pages = 3,
                           .rates = {.prefill_tokens_per_s = 1, .swap_pages_per_s = 1}}),
    TestName);

// Logits of every row are limited by themselves, in all micro-batches together; the rest of the
// budget goes to others.
TEST(ScheduleTest, RowsWhoseLogitsAreAllWantedAreLimitedOnTheirOwn) {
  const auto prompt = [](int64_t id, int64_t computed, bool all_logits) {
    return SequenceView{.id = SequenceId(id),
                        .length = 100,
                        .computed = computed,
                        .pages = 2,
                        .all_logits = all_logits};
  };
  const std::vector<SequenceView> running = {prompt(1, 20, true), prompt(2, 20, true)};
  std::vector<SequenceView> waiting = {prompt(3, 0, true), prompt(4, 0, false)};
  for (SequenceView& view : waiting) view.pages = 0;
  const StepPlan plan = Schedule({.now = absl::UnixEpoch(),
                                  .waiting = waiting,
                                  .running = running,
                                  .free_slots = 4,
                                  .free_pages = 100},
                                 {.max_num_batched_tokens = 64,
                                  .logit_rows = 30,
                                  .stages = 2,
                                  .micro_batches = 2,
                                  .max_micro_batch_rows = 40,
                                  .page_size = 16});
  std::map<SequenceId, int64_t> rows;
  for (const auto& batch : plan.micro_batches) {
    for (const Chunk& chunk : batch) rows[chunk.id] += chunk.count;
  }
  // 3 finds no row of logits left, and 4 does not overtake it.
  EXPECT_THAT(rows, ::testing::ElementsAre(std::pair{SequenceId(1), 30}));
  EXPECT_TRUE(plan.admissions.empty());
}

}  // namespace
}  // namespace skein::worker

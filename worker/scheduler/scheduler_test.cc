#include "worker/scheduler/scheduler.h"

#include <map>
#include <random>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct AdmitCase {
  std::string name;
  SchedulerLimits limits;
  std::vector<SequenceView> waiting;
  int running;
  int64_t free_pages;
  std::vector<Admission> want;
};

void PrintTo(const AdmitCase& c, std::ostream* out) { *out << c.name; }

class AdmitTest : public ::testing::TestWithParam<AdmitCase> {};

TEST_P(AdmitTest, TakesAPrefixThatFits) {
  const AdmitCase& c = GetParam();
  std::vector<SequenceView> running;
  for (int i = 0; i < c.running; ++i) running.push_back({1000u + i, 2, 1, 10});
  const StepPlan plan = Schedule({c.waiting, running, c.free_pages}, c.limits);
  EXPECT_EQ(plan.admissions, c.want);
}

const SchedulerLimits kLimits = {
    .max_sequences = 3, .micro_batches = 1, .max_micro_batch_rows = 64, .page_size = 16};

INSTANTIATE_TEST_SUITE_P(
    Table, AdmitTest,
    ::testing::Values(
        AdmitCase{"nothing waits", kLimits, {}, 1, 100, {}},
        AdmitCase{
            "rounds pages up", kLimits, {{1, 5, 0, 17}, {2, 5, 0, 16}}, 0, 3, {{1, 2}, {2, 1}}},
        AdmitCase{"no slot is left", kLimits, {{1, 5, 0, 16}}, 3, 100, {}},
        AdmitCase{"one slot is left", kLimits, {{1, 5, 0, 16}, {2, 5, 0, 16}}, 2, 100, {{1, 1}}},
        AdmitCase{"nobody overtakes", kLimits, {{1, 5, 0, 64}, {2, 5, 0, 16}}, 0, 3, {}}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

TEST(MicroBatchTest, DecodesSpreadEvenly) {
  const SchedulerLimits limits = {8, 2, 64, 16};
  const std::vector<SequenceView> running = {{1, 9, 8, 99}, {2, 5, 4, 99}, {3, 7, 6, 99}};
  EXPECT_THAT(Schedule({{}, running, 0}, limits).micro_batches,
              ElementsAre(ElementsAre(Chunk{1, 8, 1, true}, Chunk{2, 4, 1, true}),
                          ElementsAre(Chunk{3, 6, 1, true})));
}

TEST(MicroBatchTest, DecodesGoBeforePrompts) {
  const SchedulerLimits limits = {8, 1, 20, 16};
  const std::vector<SequenceView> running = {{1, 50, 0, 99}, {2, 5, 4, 99}};
  EXPECT_THAT(Schedule({{}, running, 0}, limits).micro_batches,
              ElementsAre(ElementsAre(Chunk{2, 4, 1, true}, Chunk{1, 0, 19, false})));
}

TEST(MicroBatchTest, ALongPromptFillsThePipelineInOrder) {
  const SchedulerLimits limits = {8, 3, 64, 16};
  const std::vector<SequenceView> running = {{1, 100, 0, 200}};
  EXPECT_THAT(Schedule({{}, running, 0}, limits).micro_batches,
              ElementsAre(ElementsAre(Chunk{1, 0, 34, false}), ElementsAre(Chunk{1, 34, 34, false}),
                          ElementsAre(Chunk{1, 68, 32, true})));
}

TEST(MicroBatchTest, AShortPromptIsNotCut) {
  const SchedulerLimits limits = {8, 4, 64, 16};
  const std::vector<SequenceView> running = {{1, 10, 0, 200}};
  EXPECT_THAT(Schedule({{}, running, 0}, limits).micro_batches,
              ElementsAre(ElementsAre(Chunk{1, 0, 10, true})));
}

TEST(MicroBatchTest, NothingToDoIsNoMicroBatch) {
  EXPECT_THAT(Schedule({}, kLimits).micro_batches, IsEmpty());
}

// Drives random loads to their end and checks every step against the contract.
TEST(SchedulePropertyTest, EveryTokenIsComputedOnceAndInOrder) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const SchedulerLimits limits = {pick(1, 6), pick(1, 4), pick(1, 40), pick(1, 20)};
    const int64_t pages = pick(20, 60);
    std::vector<SequenceView> waiting, running;
    for (int i = 0; i < 12; ++i) {
      const int64_t length = pick(1, 30);
      const int64_t most = pages * limits.page_size;
      waiting.push_back({static_cast<SequenceId>(i), std::min(length, most), 0,
                         std::min(length + pick(1, 10), most)});
    }
    int64_t free_pages = pages;
    std::map<SequenceId, int64_t> held;
    for (int step = 0; !waiting.empty() || !running.empty(); ++step) {
      ASSERT_LT(step, 10000) << "no progress";
      const StepPlan plan = Schedule({waiting, running, free_pages}, limits);
      for (const Admission& admission : plan.admissions) {
        ASSERT_EQ(admission.id, waiting.front().id);
        ASSERT_GE(admission.pages * limits.page_size, waiting.front().max_length);
        held[admission.id] = admission.pages;
        free_pages -= admission.pages;
        running.push_back(waiting.front());
        waiting.erase(waiting.begin());
      }
      ASSERT_GE(free_pages, 0);
      ASSERT_LE(running.size(), static_cast<size_t>(limits.max_sequences));
      ASSERT_FALSE(plan.micro_batches.empty());
      ASSERT_LE(plan.micro_batches.size(), static_cast<size_t>(limits.micro_batches));
      std::set<SequenceId> sampled;
      for (const auto& batch : plan.micro_batches) {
        int64_t rows = 0;
        std::set<SequenceId> seen;
        for (const Chunk& chunk : batch) {
          rows += chunk.count;
          ASSERT_TRUE(seen.insert(chunk.id).second);
          auto it = std::find_if(running.begin(), running.end(),
                                 [&](const auto& s) { return s.id == chunk.id; });
          ASSERT_NE(it, running.end());
          ASSERT_EQ(chunk.begin, it->computed);
          ASSERT_GE(chunk.count, 1);
          it->computed += chunk.count;
          ASSERT_LE(it->computed, it->length);
          ASSERT_EQ(chunk.sample, it->computed == it->length);
          if (chunk.sample) sampled.insert(chunk.id);
        }
        ASSERT_GE(rows, 1);
        ASSERT_LE(rows, limits.max_micro_batch_rows);
      }
      for (auto it = running.begin(); it != running.end();) {
        if (sampled.count(it->id) && ++it->length > it->max_length) {
          free_pages += held[it->id];
          it = running.erase(it);
        } else {
          ++it;
        }
      }
    }
    EXPECT_EQ(free_pages, pages);
  }
}

}  // namespace
}  // namespace skein::worker

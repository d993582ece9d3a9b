// What chunked prefill costs, on modelled work: a step takes max(bytes / B, operations / F), with
// bytes and operations from the shapes of the synthetic 1B, and the rates of one measured machine:
// 2 Zen 4 cores, which read 51 GB/s and multiply at 190 GFLOP/s.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "worker/scheduler/schedule.h"

namespace skein::worker {
namespace {

constexpr double kBytesPerSecond = 51e9;
constexpr double kOperationsPerSecond = 190e9;

constexpr double kLayers = 16, kHidden = 2048, kFfn = 8192, kHeads = 32, kKvHeads = 8;
constexpr double kVocabulary = 128256;
constexpr double kBf16Bytes = 2;
constexpr double kKvWidth = kHidden / kHeads * kKvHeads;
// q and o, k and v, gate, up and down.
constexpr double kLayerWeights =
    2 * kHidden * kHidden + 2 * kHidden * kKvWidth + 3 * kHidden * kFfn;
constexpr double kHeadWeights = kHidden * kVocabulary;

double Operations(const Chunk& chunk) {
  const double rows = chunk.count;
  const double attended = rows * (chunk.begin + (rows + 1) / 2);  // causal
  return rows * 2 * kLayers * kLayerWeights + attended * 4 * kHidden * kLayers +
         (chunk.draws ? 2 * kHeadWeights : 0);
}

// What the stages of a pipeline work in a step, one after the other: every micro-batch reads all
// weights. Each chunk reads its sequence's keys and values once, and writes its own.
double StepSeconds(const StepPlan& plan) {
  double seconds = 0;
  for (const std::vector<Chunk>& batch : plan.micro_batches) {
    double bytes = (kLayers * kLayerWeights + kHeadWeights) * kBf16Bytes;
    double operations = 0;
    for (const Chunk& chunk : batch) {
      const double rows = chunk.count, end = chunk.begin + chunk.count;
      bytes += (end + rows) * 2 * kKvWidth * kLayers * kBf16Bytes;
      operations += Operations(chunk);
    }
    seconds += std::max(bytes / kBytesPerSecond, operations / kOperationsPerSecond);
  }
  return seconds;
}

constexpr int64_t kPrompt = 2000;
constexpr int64_t kAnswered = 200;  // tokens that streams hold as the prompt comes
constexpr SequenceId kPromptId{100};

// The same step without the prompt.
StepPlan DecodesAlone(StepPlan plan) {
  for (std::vector<Chunk>& batch : plan.micro_batches) {
    std::erase_if(batch, [](const Chunk& chunk) { return chunk.id == kPromptId; });
  }
  std::erase_if(plan.micro_batches, [](const auto& batch) { return batch.empty(); });
  return plan;
}

struct Outcome {
  double seconds = 0;
  double prefill_seconds = 0;  // of them, what the prompt adds
  double longest_step_s = 0;
  int steps = 0;
  int64_t most_rows = 0;
  bool every_stream_in_every_step = true;
};

// Until the prompt's first token, beside streams in mid-answer.
Outcome Prefill(int streams, int64_t max_num_batched_tokens, int32_t micro_batches = 1) {
  const SchedulerLimits limits = {.max_num_batched_tokens = max_num_batched_tokens,
                                  .stages = micro_batches,
                                  .micro_batches = micro_batches,
                                  .max_micro_batch_rows = 4096,
                                  .page_size = 16};
  std::vector<SequenceView> running;
  for (int i = 0; i < streams; ++i) {
    running.push_back({.id = SequenceId(i), .length = kAnswered + 1, .computed = kAnswered});
  }
  std::vector<SequenceView> waiting = {
      {.id = kPromptId, .arrival = absl::UnixEpoch(), .length = kPrompt}};
  Outcome outcome;
  for (bool done = false; !done;) {
    const StepPlan plan = Schedule({.now = absl::UnixEpoch(),
                                    .waiting = waiting,
                                    .running = running,
                                    .free_slots = 8,
                                    .free_pages = 100000},
                                   limits);
    if (!plan.admissions.empty()) running.push_back(waiting.back()), waiting.clear();
    int64_t rows = 0;
    int sampled_streams = 0;
    for (const std::vector<Chunk>& batch : plan.micro_batches) {
      for (const Chunk& chunk : batch) {
        rows += chunk.count;
        SequenceView& view = *std::find_if(running.begin(), running.end(),
                                           [&](const auto& v) { return v.id == chunk.id; });
        view.computed += chunk.count;
        view.length += chunk.draws;
        if (chunk.id != kPromptId) sampled_streams += chunk.draws;
        if (chunk.id == kPromptId) done = chunk.draws;
      }
    }
    const double seconds = StepSeconds(plan);
    outcome.seconds += seconds;
    outcome.prefill_seconds += seconds - StepSeconds(DecodesAlone(plan));
    outcome.longest_step_s = std::max(outcome.longest_step_s, seconds);
    ++outcome.steps;
    outcome.most_rows = std::max(outcome.most_rows, rows);
    outcome.every_stream_in_every_step &= sampled_streams == streams;
  }
  return outcome;
}

TEST(ModelledWorkTest, APromptDelaysStreamsByOneStepsBudgetOnly) {
  for (const int64_t max_num_batched_tokens : {64, 256, 512}) {
    const Outcome outcome = Prefill(8, max_num_batched_tokens);
    EXPECT_TRUE(outcome.every_stream_in_every_step);
    EXPECT_EQ(outcome.most_rows, max_num_batched_tokens);
    EXPECT_EQ(outcome.steps, (kPrompt + max_num_batched_tokens - 9) / (max_num_batched_tokens - 8));
  }
}

struct ThroughputCase {
  int streams;
  int64_t max_num_batched_tokens;
  int32_t micro_batches = 1;
};

// Shares of the whole prompt's rate. The first charges prefill what it adds to the steps: the
// tokens that streams get meanwhile are work of their own, which a prompt in one piece only puts
// off. The second charges them to the prompt, too.
struct Throughput {
  double of_prefill = 0;
  double with_decodes = 0;
};

Throughput Compare(const Outcome& chunked, const Outcome& whole) {
  return {whole.prefill_seconds / chunked.prefill_seconds, whole.seconds / chunked.seconds};
}

Outcome PrefillWhole(int streams) { return Prefill(streams, kPrompt + streams); }

class ThroughputTest : public ::testing::TestWithParam<ThroughputCase> {};

TEST_P(ThroughputTest, ChunksCostAtMostATwentieth) {
  const auto [streams, max_num_batched_tokens, micro_batches] = GetParam();
  const Outcome chunked = Prefill(streams, max_num_batched_tokens, micro_batches);
  const Outcome whole = PrefillWhole(streams);
  ASSERT_EQ(whole.steps, 1);
  const Throughput got = Compare(chunked, whole);
  std::printf(
      "%d streams, %ld rows a step, %d micro-batches: %d steps, %.2f s, the longest %.2f s, the "
      "prompt's share %.2f s; whole %.2f s, %.2f s: %.1f%%, with the decodes %.1f%%\n",
      streams, static_cast<long>(max_num_batched_tokens), micro_batches, chunked.steps,
      chunked.seconds, chunked.longest_step_s, chunked.prefill_seconds, whole.seconds,
      whole.prefill_seconds, 100 * got.of_prefill, 100 * got.with_decodes);
  EXPECT_GE(got.of_prefill, 0.95);
  EXPECT_GE(got.with_decodes, 0.95);
}

// Pipelines also with the smallest budgets, where the least rows of a piece decide: 64 rows in 8
// micro-batches would be pieces of 4, which read more than they compute.
INSTANTIATE_TEST_SUITE_P(
    Table, ThroughputTest,
    ::testing::Values(ThroughputCase{0, 64}, ThroughputCase{2, 64}, ThroughputCase{0, 256},
                      ThroughputCase{8, 256}, ThroughputCase{10, 256}, ThroughputCase{15, 384},
                      ThroughputCase{15, 512, 2}, ThroughputCase{15, 1024, 4},
                      ThroughputCase{15, 2048, 8}, ThroughputCase{8, 512},
                      ThroughputCase{0, 512, 2}, ThroughputCase{8, 512, 2},
                      ThroughputCase{0, 1024, 4}, ThroughputCase{8, 1024, 4},
                      ThroughputCase{0, 2048, 8}, ThroughputCase{8, 2048, 8},
                      ThroughputCase{0, 64, 2}, ThroughputCase{0, 64, 4}, ThroughputCase{0, 64, 8},
                      ThroughputCase{0, 256, 8}, ThroughputCase{8, 256, 8}),
    [](const auto& info) {
      return absl::StrCat(info.param.streams, "_streams_", info.param.max_num_batched_tokens,
                          "_rows_", info.param.micro_batches, "_micro_batches");
    });

// The best share, decodes charged, that any schedule can reach which gives every stream a token in
// each of `steps` steps: the operations alone, none of them twice, and no wait for memory.
double BestShare(int streams, int64_t steps) {
  double operations = Operations({kPromptId, 0, kPrompt, true});
  for (int64_t step = 0; step < steps; ++step) {
    operations += streams * Operations({SequenceId(), kAnswered + step, 1, true});
  }
  return PrefillWhole(streams).seconds * kOperationsPerSecond / operations;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A stream's row takes as many operations as 1.3 of the prompt's, for the output matrix, so that
// some 23 rows of the prompt a step make one stream's part a twentieth. Where the budget leaves
// fewer, no order of the work reaches 95%: the streams' own tokens are the difference. A larger
// budget reaches it, in longer steps, for which every stream waits with every token. 256 rows and
// 16 sequences, the prompt and 15 others, are the planner's defaults.
TEST(ModelledWorkTest, WhereStreamsTakeMoreThanATwentiethOfTheStepsNoScheduleReaches95Percent) {
  struct Case {
    int streams;
    int64_t max_num_batched_tokens;
    int64_t enough;  // the least budget, in steps of 16 rows, that reaches it
  };
  for (const Case& c : {Case{15, 256, 352}, Case{8, 64, 192}, Case{15, 64, 352}}) {
    SCOPED_TRACE(absl::StrCat(c.streams, " streams, ", c.max_num_batched_tokens, " rows"));
    const double best =
        BestShare(c.streams, CeilDiv(kPrompt, c.max_num_batched_tokens - c.streams));
    EXPECT_LT(best, 0.95);
    // Nor would it help if the streams' rows came on top of the budget.
    EXPECT_LT(BestShare(c.streams, CeilDiv(kPrompt, c.max_num_batched_tokens)), 0.95);
    const Outcome chunked = Prefill(c.streams, c.max_num_batched_tokens);
    const Outcome whole = PrefillWhole(c.streams);
    EXPECT_GE(Compare(chunked, whole).with_decodes, 0.99 * best);
    EXPECT_GE(Compare(chunked, whole).of_prefill, 0.95);

    int64_t enough = c.max_num_batched_tokens;
    while (Compare(Prefill(c.streams, enough), whole).with_decodes < 0.95) enough += 16;
    EXPECT_EQ(enough, c.enough);
    const double longer = Prefill(c.streams, enough).longest_step_s / chunked.longest_step_s;
    EXPECT_GT(longer, 1.3);
    std::printf(
        "%d streams, %ld rows: %.1f%%, at most %.1f%%; %ld rows, in steps %.1f times as "
        "long, reach 95%%\n",
        c.streams, static_cast<long>(c.max_num_batched_tokens),
        100 * Compare(chunked, whole).with_decodes, 100 * best, static_cast<long>(enough), longer);
  }
}

}  // namespace
}  // namespace skein::worker

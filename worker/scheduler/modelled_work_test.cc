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
      operations += rows * 2 * kLayers * kLayerWeights;
      const double attended = rows * (chunk.begin + (rows + 1) / 2);  // causal
      operations += attended * 4 * kHidden * kLayers;
      if (chunk.sample) operations += 2 * kHeadWeights;
    }
    seconds += std::max(bytes / kBytesPerSecond, operations / kOperationsPerSecond);
  }
  return seconds;
}

constexpr int64_t kPrompt = 2000;
constexpr SequenceId kPromptId = 100;

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
Outcome Prefill(int streams, int64_t step_tokens, int32_t micro_batches = 1) {
  const SchedulerLimits limits = {.step_tokens = step_tokens,
                                  .stages = micro_batches,
                                  .micro_batches = micro_batches,
                                  .max_micro_batch_rows = 4096,
                                  .page_size = 16};
  std::vector<SequenceView> running;
  for (int i = 0; i < streams; ++i) {
    running.push_back({.id = static_cast<SequenceId>(i), .length = 201, .computed = 200});
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
        view.length += chunk.sample;
        if (chunk.id != kPromptId) sampled_streams += chunk.sample;
        if (chunk.id == kPromptId) done = chunk.sample;
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
  for (const int64_t step_tokens : {64, 256, 512}) {
    const Outcome outcome = Prefill(8, step_tokens);
    EXPECT_TRUE(outcome.every_stream_in_every_step);
    EXPECT_EQ(outcome.most_rows, step_tokens);
    EXPECT_EQ(outcome.steps, (kPrompt + step_tokens - 9) / (step_tokens - 8));
  }
}

struct ThroughputCase {
  int streams;
  int64_t step_tokens;
  int32_t micro_batches = 1;
  double with_decodes = 0.95;  // the least share of the whole prompt's rate
};

class ThroughputTest : public ::testing::TestWithParam<ThroughputCase> {};

// Prefill is charged what it adds to the steps: the tokens that streams get meanwhile are work of
// their own, which a prompt in one piece only puts off. `with_decodes` charges them to the prompt,
// too: they take the streams' part of every step, as 15 streams do 7% of 256 rows.
TEST_P(ThroughputTest, ChunksCostAtMostATwentieth) {
  const auto [streams, step_tokens, micro_batches, with_decodes] = GetParam();
  const Outcome chunked = Prefill(streams, step_tokens, micro_batches);
  const Outcome whole = Prefill(streams, kPrompt + streams);
  ASSERT_EQ(whole.steps, 1);
  const double ratio = whole.prefill_seconds / chunked.prefill_seconds;
  const double ratio_with_decodes = whole.seconds / chunked.seconds;
  std::printf(
      "%d streams, %ld rows a step, %d micro-batches: %d steps, %.2f s, the longest %.2f s, the "
      "prompt's share %.2f s; whole %.2f s, %.2f s: %.1f%%, with the decodes %.1f%%\n",
      streams, static_cast<long>(step_tokens), micro_batches, chunked.steps, chunked.seconds,
      chunked.longest_step_s, chunked.prefill_seconds, whole.seconds, whole.prefill_seconds,
      100 * ratio, 100 * ratio_with_decodes);
  EXPECT_GE(ratio, 0.95);
  EXPECT_GE(ratio_with_decodes, with_decodes);
}

// 256 rows for every stage and 16 sequences are the planner's defaults: the prompt and 15 others.
// Pipelines also with the smallest budgets, where the least rows of a piece decide: 64 rows in 8
// micro-batches would be pieces of 4, which read more than they compute.
INSTANTIATE_TEST_SUITE_P(
    Table, ThroughputTest,
    ::testing::Values(ThroughputCase{0, 64}, ThroughputCase{0, 256}, ThroughputCase{8, 256},
                      ThroughputCase{15, 256, 1, 0.93}, ThroughputCase{15, 512, 2},
                      ThroughputCase{15, 1024, 4}, ThroughputCase{15, 2048, 8},
                      ThroughputCase{8, 64, 1, 0.85}, ThroughputCase{15, 64, 1, 0.73},
                      ThroughputCase{8, 512}, ThroughputCase{0, 512, 2}, ThroughputCase{8, 512, 2},
                      ThroughputCase{0, 1024, 4}, ThroughputCase{8, 1024, 4},
                      ThroughputCase{0, 2048, 8}, ThroughputCase{8, 2048, 8},
                      ThroughputCase{0, 64, 2}, ThroughputCase{0, 64, 4}, ThroughputCase{0, 64, 8},
                      ThroughputCase{0, 256, 8}, ThroughputCase{8, 256, 8}),
    [](const auto& info) {
      return absl::StrCat(info.param.streams, "_streams_", info.param.step_tokens, "_rows_",
                          info.param.micro_batches, "_micro_batches");
    });

}  // namespace
}  // namespace skein::worker

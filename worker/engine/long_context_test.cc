// Scheduling costs as much where contexts are long as where they are short.
#include <time.h>

#include <algorithm>
#include <vector>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "worker/engine/replica_test_util.h"

namespace skein::worker {
namespace {

constexpr int64_t kSequences = 64;
constexpr int64_t kPage = 16;

absl::Duration ThreadCpuTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

// Measures the median CPU time of planning, building and encoding an order in steady decode of 64
// sequences.
void MeasureAnOrder(int64_t context, absl::Duration& cost) {
  constexpr int kSteps = 201;
  constexpr int64_t kTokens = 2000;  // the first ones decode while others are read
  Replica replica({.scheduler = {.max_num_batched_tokens = 8192 + kSequences,
                                 .micro_batches = 1,
                                 .max_micro_batch_rows = 8192 + kSequences,
                                 .page_size = kPage},
                   .max_num_seqs = kSequences,
                   .pages = kSequences * (context + kTokens) / kPage + kSequences,
                   .context_length = context + kTokens,
                   .vocab_size = 1 << 20});
  for (int64_t id = 1; id <= kSequences; ++id) {
    // Nothing is shared: each prompt begins in its own way.
    std::vector<int32_t> prompt(context, 7);
    prompt[0] = static_cast<int32_t>(100 + id);
    serving::Request request = Request(id, std::move(prompt), kTokens);
    replica.Add(std::move(request));
  }
  const auto decodes = [](const StepOrder& order) {
    return order.micro_batches.size() == 1 && order.micro_batches[0].size() == kSequences &&
           std::all_of(order.micro_batches[0].begin(), order.micro_batches[0].end(),
                       [](const ChunkOrder& chunk) { return chunk.rows() == 1; });
  };
  while (!decodes(replica.Step())) replica.state.TakeReport();
  std::vector<absl::Duration> costs;
  for (int i = 0; i < kSteps; ++i) {
    const absl::Duration begin = ThreadCpuTime();
    absl::StatusOr<std::optional<StepOrder>> order = replica.state.NextOrder(replica.now);
    const bool built = order.ok() && order->has_value() && !Encode(**order).empty();
    costs.push_back(ThreadCpuTime() - begin);
    ASSERT_TRUE(built && decodes(**order));
    replica.Finish(**order);
    replica.state.TakeReport();
  }
  std::nth_element(costs.begin(), costs.begin() + kSteps / 2, costs.end());
  cost = costs[kSteps / 2];
}

TEST(LongContextTest, AnOrderCostsTheSameWhateverTheContext) {
  absl::Duration at_1k, at_128k;
  ASSERT_NO_FATAL_FAILURE(MeasureAnOrder(1 << 10, at_1k));
  ASSERT_NO_FATAL_FAILURE(MeasureAnOrder(1 << 17, at_128k));
  RecordProperty("order_us_at_1k", absl::ToInt64Microseconds(at_1k));
  RecordProperty("order_us_at_128k", absl::ToInt64Microseconds(at_128k));
  // A look at each page would be 128 times as many; the prefix cache's tables no longer fit a
  // cache.
  EXPECT_LT(at_128k, 4 * at_1k) << at_1k << " against " << at_128k;
}

}  // namespace
}  // namespace skein::worker

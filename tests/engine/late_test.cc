// A stage over a device that is behind the host: its steps are begun while others run, and what one
// changes takes effect in its turn.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/test_util.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/late_backend.h"
#include "model/config/model_config.h"
#include "model/format/open.h"
#include "tests/engine/local_replica.h"

namespace skein::worker {
namespace {

using ::testing::SizeIs;
using Kind = kernels::PageCopy::Kind;

class LateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    constexpr const char* kBard = "checkpoints/bard";
    SKEIN_ASSERT_OK_AND_ASSIGN(config_, model::LoadModelConfig(kBard));
    SKEIN_ASSERT_OK_AND_ASSIGN(tensors_, model::OpenTensorSource(kBard));
  }

  // Null: at once.
  std::unique_ptr<LocalReplica> Make(const kernels::LateOptions* late) {
    LocalReplicaOptions options{.page_size = 4, .pages = 8, .swap_pages = 8, .observe = false};
    options.make_backend = [late]() -> std::unique_ptr<kernels::Backend> {
      auto cpu = *kernels::MakeCpuBackend({.threads = 1});
      return late == nullptr ? std::move(cpu) : kernels::MakeLateBackend(std::move(cpu), *late);
    };
    return *LocalReplica::Create(config_, *tensors_, options);
  }

  // A prompt of `length` tokens in `slot`, whose pages are these.
  static void Start(StepOrder& order, int32_t slot, int32_t length, std::vector<int32_t> pages) {
    ChunkOrder chunk{.slot = slot, .draws = true};
    for (int32_t i = 0; i < length; ++i) chunk.tokens.push_back(100 + 7 * i + 311 * slot);
    order.starts.push_back({.slot = slot,
                            .prompt = {chunk.tokens.begin(), chunk.tokens.end()},
                            .sampling = {.temperature = 0, .logprobs = 0}});
    order.updates.push_back({.slot = slot, .pages = std::move(pages)});
    order.micro_batches.resize(1);
    order.micro_batches[0].push_back(std::move(chunk));
  }
  static StepOrder Decode(int64_t step, const std::vector<int32_t>& slots) {
    StepOrder order{.step = step, .micro_batches = {{}}};
    for (int32_t slot : slots) {
      order.micro_batches[0].push_back(
          {.slot = slot, .tokens = {kernels::kNewestToken}, .draws = true});
    }
    return order;
  }

  // The tokens of all steps with their log probabilities, in the orders' order; each begins before
  // the last one's result is taken.
  using Drawn = std::vector<std::pair<int32_t, float>>;
  static Drawn Tokens(LocalReplica& replica, const std::vector<StepOrder>& orders) {
    Drawn tokens;
    const auto finish = [&] {
      const absl::StatusOr<StepResult> result = replica.Finish();
      EXPECT_THAT(result.status(), IsOk());
      for (const auto& row : result->sampled) {
        tokens.emplace_back(row.tokens.at(0).id, row.tokens.at(0).logprob);
      }
    };
    for (size_t i = 0; i < orders.size(); ++i) {
      replica.Begin(orders[i]);
      if (i > 0) finish();
    }
    finish();
    return tokens;
  }

  model::ModelConfig config_;
  std::unique_ptr<model::TensorSource> tensors_;
};

// Slot 0's pages are swapped out while the step before still writes them, and slot 1's come back
// into them, in one order. Slot 0 then comes back elsewhere.
TEST_F(LateTest, PagesAreSwappedAndTakenAgainInOneOrder) {
  std::vector<StepOrder> orders;
  StepOrder& first = orders.emplace_back(StepOrder{.step = 0});
  Start(first, 0, 7, {0, 1});
  Start(first, 1, 6, {2, 3});
  StepOrder away = Decode(1, {0});
  away.copies = {{Kind::kSwapOut, 2, 0}, {Kind::kSwapOut, 3, 1}};
  orders.push_back(away);
  StepOrder turn = Decode(2, {1});
  turn.copies = {
      {Kind::kSwapOut, 0, 2}, {Kind::kSwapOut, 1, 3}, {Kind::kSwapIn, 0, 1}, {Kind::kSwapIn, 1, 0}};
  turn.updates = {{.slot = 1, .pages = {1, 0, 7}}};
  orders.push_back(turn);
  StepOrder back = Decode(3, {0, 1});
  back.copies = {{Kind::kSwapIn, 2, 6}, {Kind::kSwapIn, 3, 5}};
  back.updates = {{.slot = 0, .pages = {6, 5, 4}}};
  orders.push_back(back);
  orders.push_back(Decode(4, {0, 1}));

  const Drawn want = Tokens(*Make(nullptr), orders);
  ASSERT_THAT(want, SizeIs(8));
  // Undisturbed, in pages of their own.
  std::vector<StepOrder> plain = {
      {.step = 0}, Decode(1, {0}), Decode(2, {1}), Decode(3, {0, 1}), Decode(4, {0, 1})};
  Start(plain[0], 0, 7, {0, 1, 4});
  Start(plain[0], 1, 6, {2, 3, 5});
  EXPECT_EQ(Tokens(*Make(nullptr), plain), want);
  const kernels::LateOptions late;
  EXPECT_EQ(Tokens(*Make(&late), orders), want);
}

// As where a sequence gives way and nobody else can run yet.
TEST_F(LateTest, AnOrderMayChangePagesAlone) {
  StepOrder first{.step = 0};
  Start(first, 0, 7, {0, 1, 2});
  StepOrder moves{.step = 1};
  moves.copies = {
      {Kind::kSwapOut, 0, 5}, {Kind::kSwapOut, 1, 4}, {Kind::kSwapIn, 5, 3}, {Kind::kSwapIn, 4, 6}};
  moves.updates = {{.slot = 0, .pages = {3, 6, 7}}};
  // Another sequence takes the pages that were left.
  const auto beside = [](int64_t step, std::vector<int32_t> pages) {
    StepOrder order = Decode(step, {0});
    Start(order, 1, 7, std::move(pages));
    return order;
  };
  const Drawn want = Tokens(*Make(nullptr), {first, beside(1, {3, 4, 5}), Decode(2, {0, 1})});
  ASSERT_THAT(want, SizeIs(5));
  const kernels::LateOptions late;
  for (const kernels::LateOptions* options :
       {static_cast<const kernels::LateOptions*>(nullptr), &late}) {
    EXPECT_EQ(Tokens(*Make(options), {first, moves, beside(2, {0, 1, 2}), Decode(3, {0, 1})}),
              want);
  }
}

// The host prepares a step while the one before runs, and no more than one.
TEST_F(LateTest, AStepBeginsWhileTheOneBeforeRuns) {
  absl::Notification begun, released;
  int64_t ran = 0;
  kernels::LateOptions late{.delay = absl::ZeroDuration()};
  late.before_batch = [&](const kernels::Batch&) {
    if (ran++ > 0) return;
    begun.Notify();
    released.WaitForNotification();
  };
  const auto replica = Make(&late);
  StepOrder first{.step = 0};
  Start(first, 0, 3, {0, 1});
  replica->Begin(first);
  begun.WaitForNotification();
  replica->Begin(Decode(1, {0}));  // does not wait
  released.Notify();
  SKEIN_ASSERT_OK_AND_ASSIGN(const StepResult zero, replica->Finish());
  SKEIN_ASSERT_OK_AND_ASSIGN(const StepResult one, replica->Finish());
  EXPECT_EQ(zero.step, 0);
  EXPECT_EQ(one.step, 1);
  EXPECT_THAT(one.sampled, SizeIs(1));
}

// One shard's device stands still before a step, while the host is a step ahead: the call that the
// other one waits in is told with its own step.
TEST_F(LateTest, AHungCallIsToldWithTheStepThatItBelongsTo) {
  std::array<absl::Notification, 2> released;
  kernels::LateOptions stops{.delay = absl::ZeroDuration()};
  stops.before_batch = [&](const kernels::Batch& batch) {
    released[batch.step].WaitForNotification();
  };
  int32_t ranks = 0;
  LocalReplicaOptions options{.layout = {2, 1, 1}, .page_size = 4, .pages = 8, .observe = false};
  options.make_backend = [&] {
    return kernels::MakeLateBackend(
        *kernels::MakeCpuBackend({.threads = 1}),
        ranks++ == 1 ? stops : kernels::LateOptions{.delay = absl::ZeroDuration()});
  };
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto replica, LocalReplica::Create(config_, *tensors_, options));
  StepOrder first{.step = 0};
  Start(first, 0, 3, {0, 1});
  replica->Begin(first);
  replica->Begin(Decode(1, {0}));
  for (const int64_t step : {0, 1}) {
    while (!replica->progress(0).operation.has_value() || replica->progress(0).step != step) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    absl::SleepFor(absl::Milliseconds(20));
    const comm::Progress waits = replica->progress(0);
    ASSERT_TRUE(waits.operation.has_value());
    EXPECT_EQ(waits.operation->call.operation, comm::Operation::kAllReduce);
    EXPECT_EQ(waits.step, step);
    EXPECT_EQ(replica->progress(1).step, step);  // it computes
    EXPECT_FALSE(replica->progress(1).operation.has_value());
    released[step].Notify();
    SKEIN_EXPECT_OK(replica->Finish().status());
  }
  EXPECT_EQ(replica->progress(0).step, std::nullopt);
}

TEST_F(LateTest, AnAbortIsHeardWhileAStepWaits) {
  absl::Notification begun, released;
  kernels::LateOptions late{.delay = absl::ZeroDuration()};
  late.before_batch = [&](const kernels::Batch&) {
    begun.Notify();
    released.WaitForNotification();
  };
  const auto replica = Make(&late);
  StepOrder first{.step = 0};
  Start(first, 0, 3, {0, 1});
  replica->Begin(first);
  replica->Begin(Decode(1, {0}));
  std::thread aborts([&] {
    begun.WaitForNotification();
    replica->Abort(absl::UnavailableError("the leader is gone"));
  });
  // The device never ends the step.
  EXPECT_THAT(replica->Finish().status(),
              StatusIs(absl::StatusCode::kUnavailable, "the leader is gone"));
  EXPECT_THAT(replica->Finish().status(),
              StatusIs(absl::StatusCode::kUnavailable, "the leader is gone"));
  aborts.join();
  released.Notify();
}

}  // namespace
}  // namespace skein::worker

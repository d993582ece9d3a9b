// Tests the loops over a model that is played.
#include "worker/engine/loops.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/test_util.h"
#include "kernels/ops/program.h"
#include "kernels/testing/fake_executable.h"
#include "kernels/testing/late_backend.h"
#include "parallel/comm/control/control_channel.h"
#include "parallel/comm/inprocess/inprocess.h"

namespace skein::worker {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr int32_t kVocab = 16;
constexpr int32_t kSlots = 4;
constexpr int32_t kEosId = 9;

// Each row's next token is its own plus one.
class CountingExecutable final : public kernels::FakeExecutable {
 public:
  View port(kernels::BufferId, int) override { return {}; }
  int runs() const { return runs_; }

  std::function<void(int run)> on_run;
  int fail_at = 0;
  comm::Communicator* others = nullptr;  // a run waits for them

 private:
  absl::Status Run(int, const kernels::Batch& batch, kernels::BatchResult& result) override {
    const int run = ++runs_;
    if (on_run) on_run(run);
    if (others != nullptr) SKEIN_RETURN_IF_ERROR(others->AllReduce({}, kHostStream));
    if (fail_at == run) return absl::InternalError("the device is gone");
    int64_t row = 0;
    for (const kernels::BatchSequence& sequence : batch.sequences) {
      row += sequence.rows;
      const int32_t token = batch.token_ids[row - 1];
      const int32_t last = token == kernels::kNewestToken ? newest(sequence.slot) : token;
      if (!sequence.draws) continue;
      result.sampled.push_back({.slot = sequence.slot, .tokens = {{.id = (last + 1) % kVocab}}});
    }
    return absl::OkStatus();
  }

  std::atomic<int> runs_ = 0;
};

class LeaderTest : public ::testing::Test {
 protected:
  LeaderTest() {
    options_.limits = {
        .scheduler = {.max_num_batched_tokens = 8, .max_micro_batch_rows = 8, .page_size = 4},
        .max_num_seqs = kSlots,
        .pages = 32,
        .context_length = 40,
        .vocab_size = kVocab};
    options_.report = [this](const StepReport& report) { OnReport(report); };
  }

  serving::Request Request(int32_t token, int32_t max_tokens) {
    return {.id = serving::RequestId(1),
            .prompt = {token},
            .max_tokens = max_tokens,
            .eos_token_ids = {kEosId},
            .sampling = {.temperature = 0}};
  }

  void OnReport(const StepReport& report) {
    for (const serving::AnswerOutput& output : report.answers) {
      for (const auto& token : output.tokens) answer_.push_back(token.id);
      if (output.finish != serving::Finish::kNotFinished) inbox_.Stop();
    }
    if (on_report) on_report();
  }

  absl::Status Run() {
    Stage stage({.slots = kSlots}, program_, &executable_);
    return RunLeader(options_, stage, nullptr, inbox_);
  }

  kernels::Program program_;
  CountingExecutable executable_;
  LeaderOptions options_;
  Inbox inbox_;
  std::function<void()> on_report;
  std::vector<int32_t> answer_;
};

bool WaitUntil(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST_F(LeaderTest, TheNextStepRunsWhileTheLeaderIsStillBusyWithTheLast) {
  // The leader does nothing else while a report is on its way: the step that runs meanwhile was
  // sent before.
  int reports = 0;
  on_report = [&] {
    ++reports;
    if (reports < 4) {
      EXPECT_TRUE(WaitUntil([&] { return executable_.runs() > reports; })) << reports;
    }
  };
  inbox_.Submit(Request(1, 4));
  SKEIN_ASSERT_OK(Run());
  EXPECT_THAT(answer_, ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(executable_.runs(), 4);  // max_tokens is known ahead: nothing surplus
}

// A device computes by itself: the next step is handed to it while one runs, and no result waits
// for another order.
TEST_F(LeaderTest, TheNextStepIsEnqueuedWhileOneRuns) {
  std::atomic<int> enqueued = 0, run = 0;
  kernels::LateOptions late{.delay = absl::ZeroDuration()};
  late.on_enqueue = [&] { ++enqueued; };
  late.before_batch = [&](const kernels::Batch&) {
    if (++run == 4) return;  // the last one
    EXPECT_TRUE(WaitUntil([&] { return enqueued > run; })) << run;
  };
  const auto executable =
      kernels::MakeLateExecutable(std::make_unique<CountingExecutable>(), std::move(late));
  inbox_.Submit(Request(1, 4));
  Stage stage({.slots = kSlots}, program_, executable.get());
  SKEIN_ASSERT_OK(RunLeader(options_, stage, nullptr, inbox_));
  EXPECT_THAT(answer_, ElementsAre(2, 3, 4, 5));
}

TEST_F(LeaderTest, WithoutOverlapNothingIsSurplus) {
  options_.orders_ahead = 1;
  inbox_.Submit(Request(6, 30));
  SKEIN_ASSERT_OK(Run());
  EXPECT_THAT(answer_, ElementsAre(7, 8, kEosId));
  EXPECT_EQ(executable_.runs(), 3);
}

TEST_F(LeaderTest, AnEndOfTextCostsOneStepAtMost) {
  inbox_.Submit(Request(6, 30));
  SKEIN_ASSERT_OK(Run());
  EXPECT_THAT(answer_, ElementsAre(7, 8, kEosId));
  EXPECT_GE(executable_.runs(), 3);
  EXPECT_LE(executable_.runs(), 4);
}

TEST_F(LeaderTest, CancellingInMidAnswerStopsTheSequence) {
  // The scheduling thread cancels, so that this is the next thing that the leader hears of:
  // together with the second step's result, which is there as the third one runs, and asks for a
  // fourth.
  size_t reported = 0;
  on_report = [&] {
    if (reported > 0) return;
    reported = answer_.size();
    EXPECT_TRUE(WaitUntil([&] { return executable_.runs() >= 3; }));
    inbox_.Cancel(serving::RequestId(1));
  };
  inbox_.Submit(Request(10, 15));
  SKEIN_ASSERT_OK(Run());
  EXPECT_EQ(answer_.size(), reported);
  // Every run gives a token: some were reported, and the others were under way then.
  EXPECT_LE(executable_.runs(), static_cast<int64_t>(reported) + options_.orders_ahead);
}

// A coordinator is replaced while a report is on its way, which is as late as it can be.
TEST_F(LeaderTest, AReportTellsWhoseRequestsItIsOf) {
  std::vector<std::pair<uint64_t, uint64_t>> before, after;
  options_.report = [&](const StepReport& report) {
    const bool replaced = before.size() >= 2;
    for (const serving::AnswerOutput& output : report.answers) {
      (replaced ? after : before).emplace_back(report.epoch, output.request_id.value());
      if (output.finish != serving::Finish::kNotFinished) inbox_.Stop();
    }
    if (replaced || before.size() < 2) return;
    EXPECT_EQ(inbox_.NewEpoch(), 1u);
    serving::Request next = Request(1, 2);
    next.id = serving::RequestId(2);
    inbox_.Submit(next);
  };
  inbox_.Submit(Request(10, 15));
  SKEIN_ASSERT_OK(Run());
  EXPECT_THAT(before, Each(Pair(0, 1)));
  EXPECT_THAT(after, ElementsAre(Pair(1, 2), Pair(1, 2)));
}

TEST_F(LeaderTest, AStepThatTakesTooLongIsAnError) {
  options_.step_timeout = absl::Milliseconds(50);
  executable_.on_run = [&](int run) {
    if (run == 2) absl::SleepFor(absl::Milliseconds(500));
  };
  inbox_.Submit(Request(1, 8));
  EXPECT_THAT(Run(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("not over after 50ms")));
}

// Nobody could wait for a thread that computes and is stuck for ever. Meanwhile the leader's own
// thread is not to blame.
TEST_F(LeaderTest, AStepThatTakesTooLongIsToldWhileItIsStuck) {
  options_.step_timeout = absl::Milliseconds(50);
  ThreadBeats beats;
  std::atomic<bool> told = false;
  bool released = false;
  executable_.on_run = [&](int run) {
    if (run == 2) released = WaitUntil([&] { return told && beats.AnyExcused(); });
  };
  options_.beats = &beats;
  options_.on_stuck = [&](const absl::Status& why) {
    EXPECT_THAT(why, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("after 50ms")));
    told = true;
  };
  inbox_.Submit(Request(1, 8));
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("after 50ms")));
  EXPECT_TRUE(released);
}

// Plays what a follower hears until nothing is left; then the leader is gone.
class FakeChannel final : public comm::ControlChannel {
 public:
  explicit FakeChannel(std::vector<std::string> messages) : messages_(std::move(messages)) {}

  int rank() const override { return 1; }
  int size() const override { return 2; }
  absl::Status Broadcast(std::string_view, absl::Time) override {
    return absl::UnimplementedError("a follower");
  }
  absl::Status SendToLeader(std::string_view bytes, absl::Time) override {
    sent.push_back(DecodeStepResult(bytes).value());
    return absl::OkStatus();
  }
  absl::StatusOr<comm::ControlMessage> Receive(absl::Time) override {
    const size_t next = received++;
    if (next < messages_.size()) return comm::ControlMessage{0, messages_[next]};
    if (stays) WaitUntil([&] { return closed.load(); });
    return absl::UnavailableError("the leader is gone");
  }
  void Close() override { closed = true; }

  std::atomic<size_t> received = 0;
  std::atomic<bool> closed = false;
  bool stays = false;  // the leader stays, though it says no more
  std::vector<StepResult> sent;

 private:
  const std::vector<std::string> messages_;
};

class FollowerTest : public LeaderTest {
 protected:
  // Encodes a step of one token of the one sequence.
  static std::string Step(int64_t step) {
    StepOrder order{.step = step};
    order.micro_batches = {{{.tokens = {static_cast<int32_t>(step)}, .draws = true}}};
    return Encode(order);
  }
  absl::Status Follow(FakeChannel& channel) {
    Stage stage({.slots = kSlots, .groups = groups_, .on_failure = on_failure_}, program_,
                &executable_);
    return RunFollower(stage, channel, absl::Seconds(10));
  }
  StageGroups groups_;
  std::function<void(const absl::Status&)> on_failure_;
};

// Neither its group nor its leader hears of it before.
TEST_F(FollowerTest, AFailureOfItsDeviceIsToldBeforeAnyoneCanNotice) {
  const auto pair = comm::MakeInProcessGroup(2, "tp");
  groups_.tp = pair[1].get();
  executable_.fail_at = 2;
  FakeChannel channel({Step(0), Step(1), Step(2)});
  channel.stays = true;
  int told = 0;
  on_failure_ = [&](const absl::Status& why) {
    ++told;
    EXPECT_THAT(why, StatusIs(absl::StatusCode::kInternal, "the device is gone"));
    SKEIN_EXPECT_OK(groups_.tp->failure());
    EXPECT_EQ(channel.sent.size(), 1u);
  };
  EXPECT_THAT(Follow(channel), StatusIs(absl::StatusCode::kInternal, "the device is gone"));
  EXPECT_EQ(told, 1);
  EXPECT_FALSE(groups_.tp->failure().ok());
  EXPECT_EQ(channel.sent.size(), 2u);
}

TEST_F(FollowerTest, HearsWhatIsNextDuringAStep) {
  FakeChannel channel({Step(0), Step(1), EncodeStop()});
  bool heard_all = false;
  executable_.on_run = [&](int run) {
    if (run == 1) heard_all = WaitUntil([&] { return channel.received == 3; });
  };
  SKEIN_EXPECT_OK(Follow(channel));
  EXPECT_TRUE(heard_all);
  EXPECT_EQ(executable_.runs(), 2);  // what came before the stop is carried out
  ASSERT_EQ(channel.sent.size(), 2u);
  EXPECT_EQ(channel.sent[1].sampled[0].tokens[0].id, 2);
}

TEST_F(FollowerTest, ALeaderThatIsGoneEndsTheStepInHand) {
  const auto pair = comm::MakeInProcessGroup(2, "tp");  // the other one never comes
  groups_.tp = pair[1].get();
  executable_.others = groups_.tp;
  FakeChannel channel({Step(0)});
  EXPECT_THAT(Follow(channel), StatusIs(absl::StatusCode::kUnavailable, "the leader is gone"));
  EXPECT_EQ(executable_.runs(), 1);
}

TEST_F(FollowerTest, AFailedStepIsToldAndEndsTheLoop) {
  executable_.fail_at = 2;
  FakeChannel channel({Step(0), Step(1), Step(2)});
  channel.stays = true;
  EXPECT_THAT(Follow(channel), StatusIs(absl::StatusCode::kInternal, "the device is gone"));
  EXPECT_EQ(executable_.runs(), 2);
  ASSERT_EQ(channel.sent.size(), 2u);
  EXPECT_THAT(channel.sent[1].status, StatusIs(absl::StatusCode::kInternal, "the device is gone"));
  EXPECT_TRUE(channel.closed);
}

TEST_F(FollowerTest, AnOrderOfASlotThatIsNotThereIsAnError) {
  StepOrder order{.starts = {{.slot = kSlots}}};
  FakeChannel starts({Encode(order)});
  EXPECT_THAT(Follow(starts),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("slot 4, and there are 4")));
  order = {.micro_batches = {{{.slot = -1, .tokens = {1}}}}};
  FakeChannel chunks({Encode(order)});
  EXPECT_THAT(Follow(chunks), StatusIs(absl::StatusCode::kInternal, HasSubstr("works on slot -1")));
  EXPECT_EQ(executable_.runs(), 0);
}

TEST_F(FollowerTest, AMessageThatIsNoOrderIsAnError) {
  FakeChannel channel({"\x77"});
  EXPECT_THAT(Follow(channel), StatusIs(absl::StatusCode::kInternal, HasSubstr("no known kind")));
}

TEST_F(LeaderTest, AFailedStepEndsTheLoopWithItsError) {
  executable_.fail_at = 3;
  inbox_.Submit(Request(1, 8));
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInternal, HasSubstr("the device is gone")));
  EXPECT_EQ(executable_.runs(), 3);
}

}  // namespace
}  // namespace skein::worker

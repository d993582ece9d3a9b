// Micro-batches overlap: stage 0 computes i + 1 while stage 1 computes i.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/test_util.h"
#include "kernels/testing/fake_executable.h"
#include "parallel/comm/inprocess/inprocess.h"
#include "worker/engine/stage.h"

namespace skein::worker {
namespace {

constexpr int kStages = 2;
constexpr int kMicroBatches = 4;
constexpr int64_t kHidden = 4;

// Lets a run of stage 1 end only when stage 0 has begun its next one, and a run of stage 0 only
// when stage 1 has begun the one before. A schedule without overlap would never get through.
class Rendezvous {
 public:
  absl::Status Run(int stage, int micro_batch) {
    MutexLock lock(&mutex_);
    begun_[stage] = micro_batch + 1;
    changed_.NotifyAll();
    const int other = 1 - stage;
    const int wanted = stage == 0 ? micro_batch : std::min(micro_batch + 2, kMicroBatches);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (begun_[other] < wanted) {
      if (!changed_.WaitUntil(&mutex_, deadline)) {
        return absl::DeadlineExceededError("the stages do not overlap");
      }
    }
    return absl::OkStatus();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int begun_[kStages] ABSL_GUARDED_BY(mutex_) = {0, 0};
};

class MeetingExecutable final : public kernels::FakeExecutable {
 public:
  MeetingExecutable(int stage, Rendezvous* rendezvous) : stage_(stage), rendezvous_(rendezvous) {}

  View port(kernels::BufferId, int i) override {
    return {ports_[i].data(), DType::kF32, 8, kHidden};
  }
  void After(int i, Stream) override { events_.push_back(absl::StrCat("after ", i)); }
  const std::vector<float>& received() const { return received_; }
  const std::vector<std::string>& events() const { return events_; }

 private:
  absl::Status Run(int i, const kernels::Batch& batch, kernels::BatchResult&) override {
    events_.push_back(absl::StrCat("run ", i));
    if (stage_ == 0) {
      ports_[i].fill(static_cast<float>(batch.token_ids[0]));
    } else {
      received_.push_back(ports_[i][0]);
    }
    return rendezvous_->Run(stage_, runs_++);
  }

  int stage_;
  Rendezvous* rendezvous_;
  std::array<std::array<float, kHidden * 8>, kBatches> ports_{};
  std::vector<float> received_;
  std::vector<std::string> events_;
  int runs_ = 0;
};

// Notes what a stage moves.
comm::Communicator::Hook Note(std::vector<std::string>* calls_made) {
  return [calls_made](const comm::Call& call) {
    const bool sends = call.operation == comm::Operation::kSend;
    calls_made->push_back(absl::StrCat(
        call.bytes < 0 ? "flush to " : (sends ? "send to " : "receive from "), call.peer));
  };
}

TEST(PipelineTest, StagesOverlap) {
  Rendezvous rendezvous;
  const std::vector<std::unique_ptr<comm::Communicator>> groups =
      comm::MakeInProcessGroup(kStages, "hop");
  std::vector<std::string> calls_made[kStages];
  for (int stage = 0; stage < kStages; ++stage) {
    groups[stage]->set_hooks(Note(&calls_made[stage]), nullptr);
  }
  Mutex mutex;
  std::vector<TraceEvent> trace[kStages];

  StepOrder order{.step = 3};
  order.starts = {{}};
  order.updates = {{.pages = {0, 1}}};
  for (int i = 0; i < kMicroBatches; ++i) {
    order.micro_batches.push_back({{.tokens = {i + 10, 7}}});
  }
  std::vector<std::unique_ptr<MeetingExecutable>> executables;
  for (int stage = 0; stage < kStages; ++stage) {
    executables.push_back(std::make_unique<MeetingExecutable>(stage, &rendezvous));
  }
  absl::Status statuses[kStages];
  std::vector<std::thread> threads;
  for (int stage = 0; stage < kStages; ++stage) {
    threads.emplace_back([&, stage] {
      kernels::Program program{.buffers = {{.name = "residual", .cols = kHidden}}};
      (stage == 0 ? program.output : program.input) = 0;
      StageOptions options{.pp_size = kStages,
                           .pp_rank = stage,
                           .groups = {.previous = stage == 1 ? groups[1].get() : nullptr,
                                      .next = stage == 0 ? groups[0].get() : nullptr}};
      options.trace = [&](const TraceEvent& event) {
        MutexLock lock(&mutex);
        trace[event.stage].push_back(event);
      };
      statuses[stage] = Stage(options, program, executables[stage].get()).Run(order).status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) SKEIN_ASSERT_OK(status);

  // Activations arrive in order, each with its own micro-batch.
  EXPECT_THAT(executables[1]->received(), ::testing::ElementsAre(10, 11, 12, 13));
  std::vector<std::string> first(kMicroBatches, "send to 1");
  first.push_back("flush to 1");  // or the last ones may not get there while the stage sleeps
  EXPECT_EQ(calls_made[0], first);
  EXPECT_EQ(calls_made[1], std::vector<std::string>(kMicroBatches, "receive from 0"));
  // A port that is being sent is not written: batches take turns, and the next run of one waits for
  // what its port was given to. One that is received into is not read before it is there.
  EXPECT_THAT(executables[0]->events(),
              ::testing::ElementsAre("run 1", "after 1", "run 0", "after 0", "run 1", "after 1",
                                     "run 0", "after 0"));
  EXPECT_THAT(executables[1]->events(),
              ::testing::ElementsAre("after 1", "run 1", "after 0", "run 0", "after 1", "run 1",
                                     "after 0", "run 0"));
  for (const auto& events : trace) ASSERT_EQ(events.size(), static_cast<size_t>(kMicroBatches));
  for (int i = 0; i + 1 < kMicroBatches; ++i) {
    const TraceEvent& ahead = trace[0][i + 1];
    const TraceEvent& behind = trace[1][i];
    EXPECT_EQ(ahead.micro_batch, i + 1);
    EXPECT_EQ(behind.micro_batch, i);
    EXPECT_EQ(behind.step, 3);
    EXPECT_LT(ahead.begin, behind.end) << i;
    EXPECT_LT(behind.begin, ahead.end) << i;
  }
}

// A device that fails.
class FailingExecutable final : public kernels::FakeExecutable {
 public:
  View port(kernels::BufferId, int) override { return {port_.data(), DType::kF32, 1, kHidden}; }

 private:
  absl::Status Run(int, const kernels::Batch&, kernels::BatchResult&) override {
    return absl::DataLossError("a device's memory");
  }
  std::array<float, kHidden> port_{};
};

// A rank that will not come is not waited for.
TEST(PipelineTest, AStageThatFailsEndsThePeersWait) {
  const auto groups = comm::MakeInProcessGroup(kStages, "hop");
  const StepOrder order{.starts = {{}}, .micro_batches = {{{.tokens = {5}}}}};
  kernels::Program program{.buffers = {{.name = "residual", .cols = kHidden}}};
  program.output = program.input = 0;
  FailingExecutable executables[kStages];
  absl::Status statuses[kStages];
  std::vector<std::thread> threads;
  for (int stage = 0; stage < kStages; ++stage) {
    threads.emplace_back([&, stage] {
      const StageOptions options{.pp_size = kStages,
                                 .pp_rank = stage,
                                 .groups = {.previous = stage == 1 ? groups[1].get() : nullptr,
                                            .next = stage == 0 ? groups[0].get() : nullptr}};
      statuses[stage] = Stage(options, program, &executables[stage]).Run(order).status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, "a device's memory"));
  }
}

}  // namespace
}  // namespace skein::worker

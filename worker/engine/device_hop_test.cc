// Stages whose exchanges are streams' work: what they wait for, and what a back end hears of it.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/fake_executable.h"
#include "parallel/comm/fake_device.h"
#include "parallel/comm/inprocess/inprocess.h"
#include "worker/engine/stage.h"
#include "worker/engine/stage_groups.h"

namespace skein::worker {
namespace {

using comm::Call;
using comm::Operation;
using ::testing::ElementsAre;

constexpr kernels::BufferId kInput = 3;
constexpr kernels::BufferId kOutput = 5;
int of_input = 0, of_output = 0;

// One whose batches run on a device, and are under way until it is said that they are over.
class OnDevice final : public kernels::FakeExecutable {
 public:
  explicit OnDevice(std::vector<std::string>* events) : events_(events) {}
  absl::Status WarmUp() override {
    events_->push_back("warm up");
    return absl::OkStatus();
  }
  Stream port_stream(kernels::BufferId id) const override {
    return {id == kInput ? &of_input : &of_output};
  }
  View port(kernels::BufferId, int i) override { return {ports_[i], DType::kF32, 2, 4}; }
  absl::StatusOr<bool> Wait(kernels::Ticket ticket, Stream stream, absl::Time) override {
    if (stream.handle == nullptr) return over;
    events_->push_back(absl::StrCat(Name(stream), " waits for batch ", ticket));
    return true;
  }
  void After(int, Stream stream) override {
    events_->push_back(absl::StrCat("the next run waits for ", Name(stream)));
  }

  bool over = false;

 private:
  static std::string Name(Stream stream) {
    return stream.handle == &of_input ? "the input's stream" : "the output's stream";
  }
  absl::Status Run(int, const kernels::Batch&, kernels::BatchResult&) override {
    events_->push_back("run");
    return absl::OkStatus();
  }
  std::vector<std::string>* const events_;
  float ports_[kBatches][8] = {};
};

// The middle one of three stages.
class DeviceHopTest : public ::testing::Test {
 protected:
  struct Hop {
    std::unique_ptr<comm::Communicator> group;
    comm::FakeTransport* transport = nullptr;
  };
  Hop Make(int rank) {
    Hop hop = {.group = std::move(comm::MakeInProcessGroup(2, "pair")[rank])};
    auto transport = std::make_unique<comm::FakeTransport>();
    hop.transport = transport.get();
    hop.group->UseDevice(std::move(transport), std::make_shared<comm::FakeEvents>());
    return hop;
  }

  Hop tp_ = Make(0), previous_ = Make(1), next_ = Make(0);
  const StageGroups groups_ = {
      .tp = tp_.group.get(), .previous = previous_.group.get(), .next = next_.group.get()};
  std::vector<std::string> events_;
};

TEST_F(DeviceHopTest, StreamsWaitForBatchesAndTheHostDoesNot) {
  kernels::Program program;
  program.input = kInput;
  program.output = kOutput;
  OnDevice executable(&events_);
  StageOptions options = {.pp_size = 3, .pp_rank = 1, .groups = groups_};
  options.groups.tp = nullptr;
  Stage stage(options, program, &executable);
  SKEIN_ASSERT_OK(stage.WarmUp());
  EXPECT_THAT(events_, ElementsAre("warm up", "the next run waits for the input's stream",
                                   "the next run waits for the output's stream"));
  EXPECT_THAT(previous_.transport->given, ElementsAre(Call{Operation::kReceive, 0, 1, 16}));
  EXPECT_THAT(next_.transport->given, ElementsAre(Call{Operation::kSend, 1, 1, 16}));

  events_.clear();
  StepOrder order{.step = 7};
  order.starts = {{}};
  order.updates = {{.pages = {0}}};
  order.micro_batches = {{{.tokens = {1, 2}}}};
  stage.Begin(order);  // returns, though the batch is under way
  EXPECT_THAT(events_, ElementsAre("the next run waits for the input's stream", "run",
                                   "the output's stream waits for batch 1",
                                   "the next run waits for the output's stream"));
  EXPECT_EQ(next_.transport->given.back(), (Call{Operation::kSend, 1, 2, 32}));
  EXPECT_FALSE(stage.Finish(absl::InfinitePast()).has_value());
  executable.over = true;
  SKEIN_EXPECT_OK(stage.Finish(absl::InfinitePast())->status);
}

TEST_F(DeviceHopTest, ABackEndHearsOfEveryGroup) {
  const std::unique_ptr<kernels::Collectives> collectives = MakeCollectives(groups_);
  EXPECT_TRUE(collectives->RunOnDevice());
  SKEIN_EXPECT_OK(collectives->Check());
  for (Hop* const hop : {&tp_, &previous_, &next_}) {
    // Groups stay poisoned: each is the first of a set of its own.
    Hop broken = Make(0);
    broken.transport->state = absl::UnavailableError("lost");
    StageGroups groups = groups_;
    (hop == &tp_ ? groups.tp : (hop == &previous_ ? groups.previous : groups.next)) =
        broken.group.get();
    EXPECT_EQ(MakeCollectives(groups)->Check(), broken.transport->state);
  }
}

TEST_F(DeviceHopTest, AGraphsSumsAreTheShards) {
  const std::unique_ptr<kernels::Collectives> collectives = MakeCollectives(groups_);
  float data = 0;
  const Stream stream = {&of_output};
  SKEIN_EXPECT_OK(collectives->CaptureAllReduce({&data, DType::kF32, 1, 1}, stream));
  EXPECT_EQ(tp_.transport->given.size(), 1u);
  EXPECT_EQ(tp_.group->calls(), 0);
  bool launched = false;
  SKEIN_EXPECT_OK(collectives->Replay(16, stream, [&] {
    launched = true;
    return absl::OkStatus();
  }));
  EXPECT_TRUE(launched);
  EXPECT_EQ(tp_.group->calls(), 16);

  // Shards of a step have its batch alike.
  kernels::Batch batch = {.step = 3, .token_ids = {1, 2}};
  collectives->BeginBatch(batch);
  SKEIN_EXPECT_OK(collectives->AllReduce({&data, DType::kF32, 1, 1}, stream));
  batch.token_ids = {2, 1};
  collectives->BeginBatch(batch);
  SKEIN_EXPECT_OK(collectives->AllReduce({&data, DType::kF32, 1, 1}, stream));
  ASSERT_EQ(tp_.transport->steps.size(), 2u);
  EXPECT_EQ(tp_.transport->steps[0].first, 3);
  EXPECT_NE(tp_.transport->steps[0].second, tp_.transport->steps[1].second);

  auto host = comm::MakeInProcessGroup(2, "pair");
  EXPECT_FALSE(MakeCollectives({.tp = host[0].get()})->RunOnDevice());
}

}  // namespace
}  // namespace skein::worker

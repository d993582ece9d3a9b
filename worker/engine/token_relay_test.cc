#include "worker/engine/token_relay.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/fake_executable.h"
#include "parallel/comm/inprocess/inprocess.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Ids = std::vector<schedule::MicroBatchId>;

constexpr int32_t kSlots = 4;

ChunkOrder Decode(int32_t slot) {
  return {.slot = slot, .tokens = {kernels::kNewestToken}, .draws = true};
}

class ToldTokens final : public kernels::FakeExecutable {
  View port(kernels::BufferId, int) override { return {}; }
  absl::Status Run(int, const kernels::Batch&, kernels::BatchResult&) override {
    return absl::OkStatus();
  }
};

// The two stages have two shards each: ranks 0 and 1 are the first stage's, 2 reports.
class RelayTest : public ::testing::Test {
 protected:
  RelayTest() {
    for (size_t rank = 0; rank < group_.size(); ++rank) {
      relays_.push_back(
          std::make_unique<TokenRelay>(TokenRelay::Options{.tp_size = 2,
                                                           .slots = kSlots,
                                                           .group = group_[rank].get(),
                                                           .executable = &executables_[rank]}));
    }
  }

  // Carries out a step that draws a token of each chunk, in one micro-batch.
  void Step(const StepOrder& order, const std::vector<int32_t>& tokens) {
    for (auto& relay : relays_) relay->BeginStep();
    for (int rank : {0, 1}) relays_[rank]->Expect({order.step, 0}, order.micro_batches[0]);
    SKEIN_ASSERT_OK(relays_[2]->Send(tokens));
    for (auto& relay : relays_) relay->EndStep();
  }

  std::vector<std::unique_ptr<comm::Communicator>> group_ = comm::MakeInProcessGroup(3, "tokens");
  ToldTokens executables_[3];
  std::vector<std::unique_ptr<TokenRelay>> relays_;
};

TEST_F(RelayTest, ReachesEveryShardOfTheFirstStage) {
  Step({.step = 1, .micro_batches = {{Decode(2), Decode(3)}}}, {70, 80});
  for (int rank : {0, 1}) {
    SKEIN_ASSERT_OK(relays_[rank]->Receive());
    EXPECT_EQ(executables_[rank].newest(3), 80);
    EXPECT_EQ(executables_[rank].newest(2), 70);
  }
}

TEST_F(RelayTest, AwaitsTheNewestTokenOfItsChunksAlone) {
  Step({.step = 1, .micro_batches = {{Decode(2)}}}, {70});
  for (auto& relay : relays_) relay->BeginStep();
  SKEIN_ASSERT_OK(relays_[0]->Await({{.slot = 2, .tokens = {1}}, Decode(0)}));
  EXPECT_THAT(relays_[0]->FeedsOn({.micro_batches = {{Decode(2)}}}), ElementsAre(Ids{{1, 0}}));
  SKEIN_ASSERT_OK(relays_[0]->Await({Decode(0), Decode(2)}));
  EXPECT_EQ(executables_[0].newest(2), 70);
}

TEST_F(RelayTest, AStepFeedsOnTheMicroBatchesWhoseTokensItGoesOnWith) {
  Step({.step = 1, .micro_batches = {{Decode(2)}}}, {70});
  const StepOrder next = {.step = 2, .micro_batches = {{{.slot = 1, .tokens = {1}}}, {Decode(2)}}};
  relays_[0]->BeginStep();
  EXPECT_THAT(relays_[0]->FeedsOn(next), ElementsAre(IsEmpty(), Ids{{1, 0}}));
  SKEIN_ASSERT_OK(relays_[0]->Receive());
  EXPECT_THAT(relays_[0]->FeedsOn(next), ElementsAre(IsEmpty(), IsEmpty()));
}

TEST_F(RelayTest, TokensOfASequenceThatHasEndedAreTaken) {
  Step({.step = 1, .micro_batches = {{Decode(2)}}}, {70});
  Step({.step = 2, .micro_batches = {{Decode(3)}}}, {80});
  const StepOrder third = {.step = 3, .micro_batches = {{{.slot = 1, .tokens = {1}}}}};
  relays_[0]->BeginStep();
  // Nobody goes on with them; the first one is known to have been sent.
  EXPECT_THAT(relays_[0]->FeedsOn(third), ElementsAre(Ids{{1, 0}}));
  SKEIN_ASSERT_OK(relays_[0]->Receive());
  SKEIN_ASSERT_OK(relays_[0]->Receive());
  EXPECT_EQ(executables_[0].newest(3), 80);
}

// Another sequence takes a slot while a token of the one before is on its way.
TEST_F(RelayTest, AStartWaitsForNothingOfTheSequenceBefore) {
  Step({.step = 1, .micro_batches = {{Decode(2)}}}, {70});
  const StepOrder next = {.step = 2,
                          .starts = {{.slot = 2}},
                          .micro_batches = {{{.slot = 2, .tokens = {1}, .draws = true}}}};
  relays_[0]->BeginStep();
  EXPECT_THAT(relays_[0]->FeedsOn(next), ElementsAre(IsEmpty()));
  relays_[0]->EndStep();
  Step(next, {90});
  // The slot's own token comes behind, and is the newest.
  SKEIN_ASSERT_OK(relays_[0]->Await({Decode(2)}));
  EXPECT_EQ(executables_[0].newest(2), 90);
}

TEST_F(RelayTest, AMicroBatchThatSamplesNothingSendsNothing) {
  const ChunkOrder prompt = {.slot = 2, .tokens = {1, 2}};
  Step({.step = 1, .micro_batches = {{prompt}}}, {});
  Step({.step = 2, .micro_batches = {{Decode(2)}}}, {70});
  SKEIN_ASSERT_OK(relays_[1]->Receive());
  EXPECT_EQ(executables_[1].newest(2), 70);
}

}  // namespace
}  // namespace skein::worker

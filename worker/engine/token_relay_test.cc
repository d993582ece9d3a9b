#include "worker/engine/token_relay.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/inprocess/inprocess.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Ids = std::vector<schedule::MicroBatchId>;

ChunkOrder Decode(SequenceId id) {
  return {.id = id, .begin = 4, .tokens = {kSampledToken}, .sample = true};
}

// Two stages of two shards: ranks 0 and 1 are the first stage's, 2 samples.
class RelayTest : public ::testing::Test {
 protected:
  RelayTest() {
    for (const auto& member : group_) {
      relays_.push_back(std::make_unique<TokenRelay>(
          TokenRelay::Options{.tensor = 2, .pipeline = 2, .group = member.get()}));
    }
  }

  // A step that samples a token of each chunk, in one micro-batch.
  void Step(const StepOrder& order, const std::vector<int32_t>& tokens) {
    for (auto& relay : relays_) SKEIN_ASSERT_OK(relay->BeginStep(order));
    for (int rank : {0, 1}) relays_[rank]->Expect({order.step, 0}, order.micro_batches[0]);
    relays_[2]->Take(order.micro_batches[0], tokens);
    SKEIN_ASSERT_OK(relays_[2]->Send());
    for (auto& relay : relays_) relay->EndStep();
  }

  std::vector<std::unique_ptr<comm::Communicator>> group_ = comm::MakeInProcessGroup(3, "tokens");
  std::vector<std::unique_ptr<TokenRelay>> relays_;
};

TEST_F(RelayTest, ReachesEveryShardOfTheFirstStage) {
  Step({.step = 1, .micro_batches = {{Decode(7), Decode(8)}}}, {70, 80});
  for (int rank : {0, 1}) {
    SKEIN_ASSERT_OK(relays_[rank]->Receive());
    EXPECT_EQ(*relays_[rank]->Newest(8), 80);
    EXPECT_EQ(*relays_[rank]->Newest(7), 70);
  }
}

TEST_F(RelayTest, AStepFeedsOnTheMicroBatchesWhoseTokensItGoesOnWith) {
  Step({.step = 1, .micro_batches = {{Decode(7)}}}, {70});
  const StepOrder next = {.step = 2, .micro_batches = {{{.id = 9, .tokens = {1}}}, {Decode(7)}}};
  SKEIN_ASSERT_OK(relays_[0]->BeginStep(next));
  EXPECT_THAT(relays_[0]->FeedsOn(next), ElementsAre(IsEmpty(), Ids{{1, 0}}));
  SKEIN_ASSERT_OK(relays_[0]->Receive());
  EXPECT_THAT(relays_[0]->FeedsOn(next), ElementsAre(IsEmpty(), IsEmpty()));
}

TEST_F(RelayTest, TokensOfASequenceThatHasEndedAreTakenAndDropped) {
  Step({.step = 1, .micro_batches = {{Decode(7)}}}, {70});
  Step({.step = 2, .ended = {7}, .micro_batches = {{Decode(8)}}}, {80});
  const StepOrder third = {.step = 3, .micro_batches = {{{.id = 9, .tokens = {1}}}}};
  SKEIN_ASSERT_OK(relays_[0]->BeginStep(third));
  // Nobody goes on with them; the first one is known to have been sent.
  EXPECT_THAT(relays_[0]->FeedsOn(third), ElementsAre(Ids{{1, 0}}));
  SKEIN_ASSERT_OK(relays_[0]->Receive());
  SKEIN_ASSERT_OK(relays_[0]->Receive());
  EXPECT_EQ(*relays_[0]->Newest(8), 80);
}

TEST_F(RelayTest, AMicroBatchThatSamplesNothingSendsNothing) {
  const ChunkOrder prompt = {.id = 7, .tokens = {1, 2}};
  Step({.step = 1, .micro_batches = {{prompt}}}, {});
  Step({.step = 2, .micro_batches = {{Decode(7)}}}, {70});
  SKEIN_ASSERT_OK(relays_[1]->Receive());
  EXPECT_EQ(*relays_[1]->Newest(7), 70);
}

TEST(OneStageTest, TheOtherShardsWaitForTheTokenThatTheyNeed) {
  auto group = comm::MakeInProcessGroup(2, "tokens");
  TokenRelay sampler({.tensor = 2, .group = group[0].get()});
  TokenRelay other({.tensor = 2, .group = group[1].get()});
  for (int32_t step = 1; step <= 3; ++step) {
    const StepOrder order = {.step = step, .micro_batches = {{Decode(7)}}};
    SKEIN_ASSERT_OK(sampler.BeginStep(order));
    SKEIN_ASSERT_OK(other.BeginStep(order));
    if (step > 1) {
      EXPECT_EQ(*sampler.Newest(7), 10 * (step - 1));
      EXPECT_EQ(*other.Newest(7), 10 * (step - 1));
    }
    other.Expect({step, 0}, order.micro_batches[0]);
    sampler.Take(order.micro_batches[0], {10 * step});
    SKEIN_ASSERT_OK(sampler.Send());
    sampler.EndStep();
    other.EndStep();
  }
}

}  // namespace
}  // namespace skein::worker

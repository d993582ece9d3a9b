#include "worker/engine/step_order.h"

#include <optional>
#include <string>

#include "base/test_util.h"

namespace skein::worker {
namespace {

using kernels::kNewestToken;
using kernels::PageCopy;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(StepOrderTest, MessagesRoundTripAndTruncationIsNoticed) {
  StepOrder order{.step = 12};
  order.starts.push_back({.slot = 8,
                          .prompt_of = 6,
                          .prompt = {3},
                          .output = {4, 5},
                          .mu = 2.5f,
                          .sampling = {.repetition_penalty = 1.5f, .top_k = 7, .seed = 99}});
  order.starts[0].sampling.logit_bias = {{.id = 3, .bias = -2.0f}};
  order.starts[0].sampling.dry_breakers = {{1}, {2, 3}};
  order.starts.push_back({.slot = 9});
  order.copies = {{PageCopy::Kind::kSwapIn, 3, 4}};
  order.updates = {{.slot = 8, .length = 0, .first_page = 1, .pages = {6, 7}},
                   {.slot = 9, .mu = 1.5f}};
  order.micro_batches = {{{.slot = 8, .tokens = {7, kNewestToken}, .draws = true}}, {}};
  const std::string bytes = Encode(order);
  SKEIN_ASSERT_OK_AND_ASSIGN(StepOrder back, DecodeStepOrder(bytes));
  EXPECT_EQ(back.step, 12);
  EXPECT_EQ(back.starts[0].slot, 8);
  EXPECT_EQ(back.starts[0].prompt_of, 6);
  EXPECT_THAT(back.starts[0].prompt, ElementsAre(3));
  EXPECT_EQ(back.starts[0].mu, 2.5f);
  EXPECT_EQ(back.starts[1].mu, std::nullopt);
  EXPECT_EQ(back.starts[1].prompt_of, -1);
  EXPECT_EQ(back.starts[0].sampling.logit_bias[0].bias, -2.0f);
  EXPECT_THAT(back.starts[0].sampling.dry_breakers, ElementsAre(ElementsAre(1), ElementsAre(2, 3)));
  EXPECT_THAT(back.starts[0].output, ElementsAre(4, 5));
  EXPECT_EQ(back.starts[0].sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(back.starts[0].sampling.seed, 99u);
  EXPECT_EQ(back.copies, order.copies);
  EXPECT_EQ(back.updates, order.updates);
  EXPECT_THAT(back.micro_batches, ElementsAre(SizeIs(1), IsEmpty()));
  EXPECT_EQ(back.micro_batches[0][0].slot, 8);
  EXPECT_TRUE(back.micro_batches[0][0].draws);
  EXPECT_THAT(back.micro_batches[0][0].tokens, ElementsAre(7, kNewestToken));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeStepOrder(bytes.substr(0, size)).ok()) << size;
  }

  StepResult result{.step = 3, .status = absl::AbortedError("why")};
  result.sampled.push_back(
      {.slot = 2,
       .tokens = {{.id = 5, .logprob = -1.5f, .top_logprobs = {{5, -1.5f}}, .mu = 3.25f},
                  {.id = 6}}});
  SKEIN_ASSERT_OK_AND_ASSIGN(StepResult result_back, DecodeStepResult(Encode(result)));
  EXPECT_THAT(result_back.status, StatusIs(absl::StatusCode::kAborted, "why"));
  ASSERT_THAT(result_back.sampled[0].tokens, SizeIs(2));
  EXPECT_EQ(result_back.sampled[0].tokens[0].top_logprobs[0].logprob, -1.5f);
  EXPECT_EQ(result_back.sampled[0].tokens[0].mu, 3.25f);
  EXPECT_EQ(result_back.sampled[0].tokens[1].id, 6);
}

TEST(StepOrderTest, AMessageTellsItsKind) {
  EXPECT_EQ(*KindOf(Encode(StepOrder())), MessageKind::kOrder);
  EXPECT_EQ(*KindOf(Encode(StepResult())), MessageKind::kResult);
  EXPECT_EQ(*KindOf(EncodeStop()), MessageKind::kStop);
  EXPECT_FALSE(KindOf("").ok());
  EXPECT_FALSE(KindOf(std::string(1, '\0')).ok());
  EXPECT_FALSE(KindOf("\x77").ok());
  // A result must not be taken for an order.
  EXPECT_FALSE(DecodeStepOrder(Encode(StepResult())).ok());
  EXPECT_FALSE(DecodeStepResult(Encode(StepOrder())).ok());
  EXPECT_FALSE(DecodeStepOrder(EncodeStop()).ok());
}

TEST(StepOrderTest, AResultKeepsItsOrder) {
  StepResult result;
  for (const int32_t slot : {4, 2, 9}) result.sampled.push_back({.slot = slot});
  for (const int64_t first : {1, 5}) {
    result.prompt_logprobs.push_back({.slot = 7, .first = first, .tokens = {{.id = 3}, {.id = 8}}});
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(const StepResult back, DecodeStepResult(Encode(result)));
  ASSERT_THAT(back.sampled, SizeIs(3));
  EXPECT_EQ(back.sampled[0].slot, 4);
  EXPECT_EQ(back.sampled[1].slot, 2);
  EXPECT_EQ(back.sampled[2].slot, 9);
  ASSERT_THAT(back.prompt_logprobs, SizeIs(2));
  EXPECT_EQ(back.prompt_logprobs[0].first, 1);
  EXPECT_EQ(back.prompt_logprobs[1].first, 5);
  ASSERT_THAT(back.prompt_logprobs[0].tokens, SizeIs(2));
  EXPECT_EQ(back.prompt_logprobs[0].tokens[0].id, 3);
  EXPECT_EQ(back.prompt_logprobs[0].tokens[1].id, 8);
}

}  // namespace
}  // namespace skein::worker

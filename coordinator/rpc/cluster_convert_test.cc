#include "coordinator/rpc/cluster_convert.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::ElementsAre;

// A report may hold several outputs of one answer: they are read one after the other.
TEST(ClusterConvertTest, AStepKeepsItsOrder) {
  cluster::v1::StepOutput step;
  for (const uint64_t id : {7, 5, 7}) {
    cluster::v1::SequenceOutput& sequence = *step.add_sequences();
    sequence.set_request_id(id);
    const auto first = static_cast<uint32_t>(10 * step.sequences_size());
    for (uint32_t token = first; token < first + 3; ++token) {
      cluster::v1::Token& out = *sequence.add_tokens();
      out.set_id(token);
      for (const uint32_t top : {1, 2, 3}) out.add_top()->set_id(top);
      sequence.add_prompt_logprobs()->set_id(token + 5);
    }
  }
  const StepOutput got = FromProto(step);
  std::vector<uint64_t> requests;
  std::vector<int32_t> tokens, prompt_tokens, top;
  for (const SequenceOutput& sequence : got.sequences) {
    requests.push_back(sequence.request_id);
    for (const OutputToken& token : sequence.tokens) tokens.push_back(token.id);
    for (const OutputToken& token : sequence.prompt_logprobs) prompt_tokens.push_back(token.id);
    for (const auto& likely : sequence.tokens.at(0).top) top.push_back(likely.id);
  }
  EXPECT_THAT(requests, ElementsAre(7, 5, 7));
  EXPECT_THAT(tokens, ElementsAre(10, 11, 12, 20, 21, 22, 30, 31, 32));
  EXPECT_THAT(prompt_tokens, ElementsAre(15, 16, 17, 25, 26, 27, 35, 36, 37));
  EXPECT_THAT(top, ElementsAre(1, 2, 3, 1, 2, 3, 1, 2, 3));
}

}  // namespace
}  // namespace skein::coordinator

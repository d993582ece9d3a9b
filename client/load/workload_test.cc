#include "client/load/workload.h"

#include <algorithm>
#include <set>

#include "base/test_util.h"

namespace skein::client {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Lt;

Workload Base() {
  Workload workload;
  workload.requests = 200;
  workload.lengths = {{20, 4}, {30, 5}, {40, 6}};
  workload.seed = 7;
  workload.vocabulary = 100;
  workload.context_length = 64;
  return workload;
}

TEST(PlanRequestsTest, LengthsAreTakenInTurnAndPromptsDiffer) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto requests, PlanRequests(Base(), 0));
  ASSERT_EQ(requests.size(), 200u);
  std::set<std::vector<uint32_t>> prompts;
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].prompt.size(), 20 + 10 * (i % 3));
    EXPECT_EQ(requests[i].answer_tokens, 4 + static_cast<int64_t>(i % 3));
    EXPECT_EQ(requests[i].at, absl::ZeroDuration());
    EXPECT_THAT(requests[i].prompt, Each(Lt(100u)));
    prompts.insert(requests[i].prompt);
  }
  EXPECT_EQ(prompts.size(), 200u);
}

TEST(PlanRequestsTest, SeedAndStreamDecideAll) {
  Workload workload = Base();
  const auto first_prompt = [&](uint64_t seed, uint64_t stream) {
    workload.seed = seed;
    return (*PlanRequests(workload, stream))[0].prompt;
  };
  EXPECT_EQ(first_prompt(7, 0), first_prompt(7, 0));
  EXPECT_NE(first_prompt(7, 0), first_prompt(8, 0));
  EXPECT_NE(first_prompt(7, 0), first_prompt(7, 1));
}

TEST(PlanRequestsTest, AllStreamsShareThePrefix) {
  Workload workload = Base();
  workload.shared_prefix = 15;
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto warm_up, PlanRequests(workload, 1));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto requests, PlanRequests(workload, 0));
  const auto& first = warm_up[0].prompt;
  std::set<uint32_t> next;
  for (const PlannedRequest& request : requests) {
    EXPECT_TRUE(std::equal(first.begin(), first.begin() + 15, request.prompt.begin()));
    next.insert(request.prompt[15]);
  }
  EXPECT_GT(next.size(), 10u);
}

TEST(PlanRequestsTest, ArrivalsArePoisson) {
  Workload workload = Base();
  workload.requests = 20000;
  workload.rate_per_s = 50;
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto requests, PlanRequests(workload, 0));
  double sum = 0, squares = 0, before = 0;
  for (const PlannedRequest& request : requests) {
    const double gap = absl::ToDoubleSeconds(request.at) - before;
    EXPECT_GE(gap, 0);
    before += gap;
    sum += gap;
    squares += gap * gap;
  }
  const double mean = sum / 20000;
  EXPECT_NEAR(mean, 0.02, 0.001);                               // 1 / rate; 7 standard errors
  EXPECT_NEAR(squares / 20000 - mean * mean, 0.0004, 0.00004);  // an exponential's variance
}

TEST(PlanRequestsTest, RefusesLengthsThatCannotBe) {
  struct Case {
    plan::Lengths lengths;
    const char* message;
  };
  for (const auto& [lengths, message] : std::vector<Case>{
           {{0, 4}, "at least 1"},
           {{4, 0}, "at least 1"},
           {{60, 5}, "context of 64"},
           {{int64_t{1} << 62, int64_t{1} << 62}, "context of 64"},
           {{9, 4}, "shared prefix alone has 10"},
       }) {
    Workload workload = Base();
    workload.shared_prefix = 10;
    workload.lengths.push_back(lengths);
    EXPECT_THAT(PlanRequests(workload, 0),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }
}

}  // namespace
}  // namespace skein::client

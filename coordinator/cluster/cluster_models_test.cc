// Jobs of several models, and drains.
#include <cstdint>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "coordinator/cluster/cluster_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ClusterModelsTest : public ClusterTest {
 protected:
  ClusterModelsTest() { AddModel(cluster_, {.name = "chat"}, of_chat_, {"talk"}); }
  TestRank AttachFor(const std::string& model, const std::string& job, int32_t rank = 0) {
    attach::Hello hello = Hello(job, rank, 2);
    hello.model = model;
    return Attach(hello);
  }
  std::string ModelOf(const std::string& job) const {
    for (const JobStatus& status : cluster_.Status()) {
      if (status.id == job) return status.model;
    }
    return "unknown";
  }

  FakeListener of_chat_;
};

TEST_F(ClusterModelsTest, AJobServesTheModelThatItNamesOrTheOneWithTheFewestJobs) {
  SKEIN_ASSERT_OK(AttachFor("talk", "a").id.status());
  SKEIN_ASSERT_OK(AttachFor("chat", "a", 1).id.status());
  SKEIN_ASSERT_OK(AttachFor("", "b").id.status());
  SKEIN_ASSERT_OK(AttachFor("bard", "b", 1).id.status());
  SKEIN_ASSERT_OK(AttachFor("", "c").id.status());
  EXPECT_EQ(ModelOf("a"), "chat");
  EXPECT_EQ(ModelOf("b"), "bard");
  EXPECT_EQ(ModelOf("c"), "bard");  // the first of two that have one each
  EXPECT_EQ(cluster_.jobs_of("bard"), 2);
  EXPECT_THAT(AttachFor("chat", "c", 1).id.status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("serves 'bard'")));
  EXPECT_THAT(AttachFor("gpt", "d").id.status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'bard', 'chat' are")));
}

TEST_F(ClusterModelsTest, ReplicasAreToldToTheirModelsListener) {
  ServeJob("a", 2);
  ServeJob("b", 2);
  EXPECT_THAT(listener_.up, SizeIs(1));
  EXPECT_THAT(of_chat_.up, SizeIs(1));
}

TEST_F(ClusterModelsTest, ARemovedModelsJobsEndWell) {
  const std::vector<TestRank> of_bard = ServeJob("a", 2);
  const std::vector<TestRank> of_chat = ServeJob("b", 2);
  cluster_.RemoveModel("bard", "it goes", /*exit_code=*/0);
  EXPECT_THAT(of_bard[1].link->shutdowns, ElementsAre("0: it goes"));
  EXPECT_EQ(StateOf("a"), "ended");
  EXPECT_THAT(listener_.up, IsEmpty());
  EXPECT_THAT(of_chat[0].link->shutdowns, IsEmpty());
  EXPECT_EQ(StateOf("b"), "serving");
  EXPECT_EQ(AttachFor("bard", "c").id.status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ClusterModelsTest, ADrainedJobEndsOnceItsRequestsHave) {
  const std::vector<TestRank> ranks = ServeJob("a", 4);
  const std::vector<Cluster::RankId> alive = {*ranks[0].id, *ranks[1].id, *ranks[2].id,
                                              *ranks[3].id};
  listener_.outstanding = 3;
  SKEIN_ASSERT_OK_AND_ASSIGN(const Cluster::Draining draining,
                             cluster_.DrainJob("a", absl::Seconds(10)));
  EXPECT_EQ(draining.model, "bard");
  EXPECT_EQ(draining.requests, 3);
  EXPECT_TRUE(draining.last_of_model);
  EXPECT_THAT(listener_.draining, SizeIs(2));  // both replicas
  EXPECT_EQ(StateOf("a"), "draining");
  cluster_.OnStep(*ranks[0].id, {});  // it still may
  Pass(4, alive);
  EXPECT_EQ(StateOf("a"), "draining");
  EXPECT_THAT(listener_.up, SizeIs(2));
  listener_.outstanding = 0;
  Pass(1, alive);
  EXPECT_EQ(StateOf("a"), "ended");
  EXPECT_THAT(listener_.up, IsEmpty());
  for (const TestRank& rank : ranks) EXPECT_THAT(rank.link->shutdowns, ElementsAre("0: drained"));
  EXPECT_EQ(cluster_.DrainJob("a", absl::Seconds(1)).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ClusterModelsTest, ADrainEndsAfterItsTimeoutWhichMayChange) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  ServeJob("b", 2);  // of the other model
  const std::vector<Cluster::RankId> alive = {*ranks[0].id, *ranks[1].id};
  listener_.outstanding = 1;
  SKEIN_EXPECT_OK(cluster_.DrainJob("a", absl::Seconds(60)).status());
  Pass(2, alive);
  SKEIN_ASSERT_OK_AND_ASSIGN(const Cluster::Draining again,
                             cluster_.DrainJob("a", absl::Seconds(1)));
  EXPECT_TRUE(again.last_of_model);
  Pass(1, alive);
  EXPECT_EQ(StateOf("a"), "draining");
  Pass(1, alive);
  EXPECT_EQ(StateOf("a"), "ended");
  EXPECT_THAT(listener_.down.at(0).message(), HasSubstr("its timeout passed: 1 requests"));
}

// Its ranks live and die as ever.
TEST_F(ClusterModelsTest, ADrainingJobMayBeLost) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  listener_.outstanding = 1;
  SKEIN_EXPECT_OK(cluster_.DrainJob("a", absl::Seconds(60)).status());
  Pass(8, {*ranks[0].id});
  EXPECT_EQ(StateOf("a"), "lost");
}

}  // namespace
}  // namespace skein::coordinator

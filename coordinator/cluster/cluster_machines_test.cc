// The hosts of live jobs.
#include <cstdint>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "coordinator/cluster/cluster_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/topology.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;

TEST_F(ClusterTest, HostsAreThoseOfJobsThatHaveAPlan) {
  EXPECT_THAT(cluster_.Hosts().status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no job")));
  Attach(Hello("waiting", 0, 2));
  EXPECT_FALSE(cluster_.Hosts().ok());
  const std::vector<TestRank> first = ServeJob("first", 2);
  const std::vector<TestRank> second = ServeJob("second", 4);  // of these hosts, and two more
  SKEIN_ASSERT_OK_AND_ASSIGN(const LiveHosts live, cluster_.Hosts());
  const topology::Topology& hosts = live.topology;
  ASSERT_EQ(hosts.hosts.size(), 4U);
  EXPECT_EQ(hosts.hosts[0].name, "node0");
  EXPECT_EQ(hosts.hosts[3].name, "node3");
  EXPECT_EQ(hosts.hosts[3].cores, 4);
  EXPECT_EQ(hosts.hosts[3].memory_bytes, 1 << 30);
  ASSERT_EQ(live.ranks.size(), 6U);  // of both jobs
  EXPECT_EQ(live.ranks[1].job_id, "first");
  EXPECT_EQ(live.ranks[1].place.rank, 1);
  EXPECT_EQ(live.ranks[1].place.host, 1);
  EXPECT_EQ(live.ranks[5].job_id, "second");
  EXPECT_EQ(live.ranks[5].place.rank, 3);
  EXPECT_EQ(live.ranks[5].place.host, 3);
  EXPECT_EQ(live.ranks[5].place.gpu, -1);
  cluster_.OnGone(*second[3].id, absl::UnavailableError("killed"));
  EXPECT_EQ(cluster_.Hosts()->topology.hosts.size(), 2U);
}

// Each job has its fabric to itself; what is between them is assumed.
TEST_F(ClusterTest, HostsOfSeveralJobsAreACluster) {
  for (const char* job : {"a", "b"}) {
    for (int32_t rank = 0; rank < 2; ++rank) {
      attach::Hello hello = Hello(job, rank, 2);
      hello.node.host = job;
      Attach(hello);
    }
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(const LiveHosts live, cluster_.Hosts());
  const topology::Topology& hosts = live.topology;
  ASSERT_EQ(hosts.hosts.size(), 2U);
  EXPECT_GT(hosts.fabric.link.bytes_per_s, 0);
  SKEIN_EXPECT_OK(topology::CheckTopology(hosts));
}

TEST_F(ClusterTest, GpusOfAHostThatTwoJobsShareAreNotGuessedAt) {
  const auto serve = [&](const std::string& job) {
    for (int32_t rank = 0; rank < 2; ++rank) {
      attach::Hello hello = Hello(job, rank, 2);
      hello.node.host = "node";
      hello.device = {.kind = DeviceKind::kCuda, .name = "card", .memory_bytes = 1 << 30};
      Attach(hello);
    }
  };
  serve("first");
  SKEIN_ASSERT_OK_AND_ASSIGN(const LiveHosts live, cluster_.Hosts());
  const topology::Topology& hosts = live.topology;
  ASSERT_EQ(hosts.hosts.size(), 1U);
  EXPECT_EQ(hosts.hosts[0].interconnect.gpus.size(), 2U);
  EXPECT_EQ(live.ranks[1].place.gpu, 1);
  serve("second");
  EXPECT_THAT(cluster_.Hosts().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("several jobs have GPUs of node, and none has told")));
}

}  // namespace
}  // namespace skein::coordinator

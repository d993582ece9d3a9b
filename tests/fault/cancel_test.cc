// Tests that requests which nobody waits for any more free their pages at once.
#include <signal.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/running_answer.h"
#include "tests/fault/faults.h"

namespace skein::testing {
namespace {

TEST(CancelTest, ADeadlineFreesThePagesAtOnce) {
  Cluster cluster({.layout = "tp=1,pp=2", .worker = kFaultyWorker});
  cluster.StartJob(2, {kSlow});
  ASSERT_TRUE(cluster.WaitForServing(1));
  const auto load = [&] { return cluster.ServingJob(0).replicas(0).load(); };
  ASSERT_GT(load().total_pages(), 0);
  EXPECT_EQ(load().free_pages(), load().total_pages());
  std::thread request([&] {
    const Answer answer = cluster.Generate(GreedyRequest("ROMEO:", kLong), absl::Seconds(5));
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  });
  EXPECT_TRUE(WaitUntil(absl::Seconds(5), [&] { return load().used_pages() >= 2; }));
  request.join();
  EXPECT_TRUE(WaitUntil(absl::Seconds(1), [&] { return load().used_pages() == 0; }));
  // What it has computed may stay for later prompts.
  EXPECT_EQ(load().free_pages() + load().cached_pages(), load().total_pages());
}

TEST(CancelTest, ACancellationFreesThePagesAtOnce) {
  Cluster cluster({.layout = "tp=1,pp=2", .worker = kFaultyWorker});
  cluster.StartJob(2, {kSlow});
  ASSERT_TRUE(cluster.WaitForServing(1));
  const auto load = [&] { return cluster.ServingJob(0).replicas(0).load(); };
  grpc::ClientContext context;
  const auto reader = cluster.inference().Generate(&context, GreedyRequest("ROMEO:", kLong));
  v1::GenerateEvent event;
  while (reader->Read(&event) && !event.has_tokens()) {
  }
  ASSERT_TRUE(WaitUntil(absl::Seconds(5), [&] { return load().used_pages() > 0; }));
  const absl::Time bound = absl::Now() + absl::Seconds(1);
  context.TryCancel();
  EXPECT_TRUE(WaitUntil(bound - absl::Now(), [&] { return load().used_pages() == 0; }));
  EXPECT_EQ(load().running(), 0);
  EXPECT_EQ(load().free_pages() + load().cached_pages(), load().total_pages());
  while (reader->Read(&event)) EXPECT_FALSE(event.has_finished());
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// Nobody says a word to the coordinator: its connection breaks.
TEST(CancelTest, AKilledClientIsNoticedAndItsPagesAreFree) {
  constexpr int kAnswers = 8;
  Cluster cluster({.layout = "tp=1,pp=2", .worker = kFaultyWorker});
  cluster.StartJob(2, {kSlow});
  ASSERT_TRUE(cluster.WaitForServing(1));
  Process client({.name = "client",
                  .argv = {"client/skein", "--coordinator=" + cluster.address(), "generate",
                           "--prompt=ROMEO:", absl::StrCat("--n=", kAnswers),
                           absl::StrCat("--max-tokens=", kLong), "--ignore-eos", "--json"}});
  ASSERT_TRUE(client.WaitForOutput("\"tokens\"", absl::Seconds(30))) << client.Output();
  const absl::Time bound = absl::Now() + kBound;
  client.Signal(SIGKILL);
  ASSERT_EQ(client.Wait(kBound), 128 + SIGKILL);
  cluster::v1::ReplicaStatus replica;
  EXPECT_TRUE(cluster.WaitForStatus(
      [&](const auto& status) {
        replica = status.jobs(0).replicas(0);
        return status.running_requests() + replica.load().running() == 0 &&
               replica.load().used_pages() == 0;
      },
      bound - absl::Now()));
  EXPECT_GT(replica.tokens_total(), 0);
  EXPECT_LT(replica.tokens_total(), kAnswers * kLong);  // it has not gone on to the end
}

}  // namespace
}  // namespace skein::testing

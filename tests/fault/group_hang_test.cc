// A rank of a job of two replicas, two stages and two shards stops at a chosen call, once in every
// group: who is named, for which call of which step, and who waits for it.
#include <atomic>
#include <cctype>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/running_answer.h"

namespace skein::testing {
namespace {

using ::testing::AnyOfArray;
using ::testing::HasSubstr;

// A rank counts as stuck inside a call when it has not moved for 5 s, by a heartbeat that may be
// late on a busy machine.
constexpr absl::Duration kDeadline = absl::Seconds(8);
constexpr absl::Duration kPatience = absl::Seconds(60);  // for a job to serve, and for its loss

// Replicas have ranks 0 to 3 and 4 to 7, stages the lower and the higher two of them. A step makes
// 9 collectives in every stage: an all-reduce for the embedding and two a layer; two a layer and an
// all-gather of the logits. Each activation is a message, and each token one to every rank of stage
// 0. Steps are counted from 0, all else from 1.
struct Hang {
  std::string fault;  // as faulty_worker takes it
  int rank;
  // Where several ranks wait for it, the one that has by its last heartbeat waited for longest says
  // what is missing.
  std::vector<std::string> what;
  std::string waiters;    // "T s" for every time
  std::string flag = "";  // of the job
};

struct GroupCase {
  std::string name;
  Hang never_entered;
  Hang stuck_inside;
};

void PrintTo(const GroupCase& c, std::ostream* out) { *out << c.name; }

// "8.1 s" becomes "T s".
std::string WithoutTimes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && (std::isdigit(text[end]) != 0 || text[end] == '.')) ++end;
    const bool time = end > i && text.substr(end, 2) == " s" &&
                      text.substr(i, end - i).find('.') != std::string_view::npos;
    if (time) out += "T";
    if (end == i) ++end;
    if (!time) out += text.substr(i, end - i);
    i = end;
  }
  return out;
}

// A cluster of its own for one fault. Both of a case run at once, since a hang takes no time but
// its deadline's.
class HangingCluster {
 public:
  explicit HangingCluster(const Hang& hang) : hang_(hang) {
    std::vector<std::string> flags = {
        "--fault=" + hang.fault, absl::StrCat("--step-timeout=", absl::FormatDuration(kDeadline))};
    if (!hang.flag.empty()) flags.push_back(hang.flag);
    job_ = &cluster_.StartJob(8, flags);
  }
  ~HangingCluster() {
    stop_ = true;
    for (std::thread& client : clients_) client.join();
  }

  // Until its ranks serve; then both replicas get work, one answer at a time.
  void StartClients() {
    ASSERT_TRUE(cluster_.WaitForServing(1, kPatience)) << hang_.fault;
    serving_ = cluster_.ServingJob(0);
    for (int replica = 0; replica < 2; ++replica) {
      clients_.emplace_back([this] {
        while (!stop_ && cluster_.Generate(GreedyRequest("x", kLong)).status.ok()) {
        }
      });
    }
  }

  void ExpectItsName() {
    SCOPED_TRACE(hang_.fault);
    ASSERT_EQ(serving_.ranks_size(), 8);
    ASSERT_TRUE(cluster_.WaitForStatus(
        [&](const cluster::v1::ClusterStatus& status) {
          if (status.jobs_size() != 1 || status.jobs(0).state() != "lost") return false;
          detail_ = status.jobs(0).detail();
          return true;
        },
        kPatience));
    std::vector<std::string> expected;
    for (const std::string& what : hang_.what) {
      expected.push_back(absl::StrCat("rank ", hang_.rank, " on ", HostName(), " (pid ",
                                      serving_.ranks(hang_.rank).pid(), ") is lost: it ", what,
                                      "; ", hang_.waiters, ", past the deadline of T s"));
    }
    EXPECT_THAT(WithoutTimes(detail_), AnyOfArray(expected));
    EXPECT_THAT(detail_, HasSubstr("past the deadline of 8.0 s"));
    EXPECT_TRUE(cluster_.coordinator().WaitForOutput(detail_, kPatience));
    const std::optional<int> status = job_->Wait(kPatience);
    ASSERT_TRUE(status.has_value()) << "mpirun still runs";
    EXPECT_NE(*status, 0);
  }

 private:
  const Hang hang_;
  Cluster cluster_{
      {.layout = "tp=2,pp=2,dp=2",
       .coordinator_flags = {"--replica-wait=0s", "--max-num-seqs=1", "--kv-memory=16MiB"},
       .worker = "tests/fault/faulty_worker"}};
  Process* job_ = nullptr;
  cluster::v1::JobStatus serving_;
  std::string detail_;
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> clients_;
};

class GroupHangTest : public ::testing::TestWithParam<GroupCase> {};

TEST_P(GroupHangTest, NamesTheRankTheCallTheStepAndThoseWhoWait) {
  HangingCluster never(GetParam().never_entered);
  HangingCluster stuck(GetParam().stuck_inside);
  never.StartClients();
  stuck.StartClients();
  never.ExpectItsName();
  stuck.ExpectItsName();
}

// Stage 1 waits for what stage 0 sends, stage 0 for the tokens of the step before, which it gets
// with the order after.
const GroupCase kTensorCases[] = {
    {"tensor_group_of_replica_0_stage_0",
     {.fault = "tp of replica 0, stage 0:1:before:all-reduce 20",
      .rank = 1,
      .what = {"never entered all-reduce 20 of 'tp of replica 0, stage 0' (step 2); it was last "
               "heard computing step 2",
               "never entered send 3 to rank 3 of 'hop 0 of replica 0, shard 1' (step 2); it was "
               "last heard computing step 2"},
      .waiters = "rank 0 has waited in all-reduce 20 of 'tp of replica 0, stage 0' (step 2) for T "
                 "s; rank 2 has waited in receive 3 from rank 0 of 'hop 0 of replica 0, shard 0' "
                 "(step 2) for T s; rank 3 has waited in receive 3 from rank 1 of 'hop 0 of "
                 "replica 0, shard 1' (step 2) for T s"},
     {.fault = "tp of replica 0, stage 0:0:inside:all-reduce 17",
      .rank = 0,
      .what = {"entered all-reduce 17 of 'tp of replica 0, stage 0' (step 1) but has not moved for "
               "T s"},
      .waiters = "rank 1 has waited in all-reduce 17 of 'tp of replica 0, stage 0' (step 1) for T "
                 "s; rank 2 has waited in receive 2 from rank 0 of 'hop 0 of replica 0, shard 0' "
                 "(step 1) for T s; rank 3 has waited in receive 2 from rank 1 of 'hop 0 of "
                 "replica 0, shard 1' (step 1) for T s"}},
    // Without steps ahead stage 0 is idle meanwhile: nobody but the other shard is asked for.
    {"tensor_group_of_replica_0_stage_1",
     {.fault = "tp of replica 0, stage 1:3:before:all-reduce 20",
      .rank = 3,
      .what = {"never entered all-reduce 20 of 'tp of replica 0, stage 1' (step 2); it was last "
               "heard computing step 2"},
      .waiters =
          "rank 2 has waited in all-reduce 20 of 'tp of replica 0, stage 1' (step 2) for T s",
      .flag = "--no-overlap"},
     {.fault = "tp of replica 0, stage 1:2:inside:all-gather 27",
      .rank = 2,
      .what = {"entered all-gather 27 of 'tp of replica 0, stage 1' (step 2) but has not moved for "
               "T s"},
      .waiters =
          "rank 3 has waited in all-gather 27 of 'tp of replica 0, stage 1' (step 2) for T s",
      .flag = "--no-overlap"}},
    {"tensor_group_of_replica_1_stage_0",
     {.fault = "tp of replica 1, stage 0:4:before:all-reduce 9",
      .rank = 4,
      .what = {"never entered all-reduce 9 of 'tp of replica 1, stage 0' (step 0); it was last "
               "heard computing step 0",
               "never entered send 1 to rank 6 of 'hop 0 of replica 1, shard 0' (step 0); it was "
               "last heard computing step 0"},
      .waiters = "rank 5 has waited in all-reduce 9 of 'tp of replica 1, stage 0' (step 0) for T "
                 "s; rank 6 has waited in receive 1 from rank 4 of 'hop 0 of replica 1, shard 0' "
                 "(step 0) for T s; rank 7 has waited in receive 1 from rank 5 of 'hop 0 of "
                 "replica 1, shard 1' (step 0) for T s"},
     {.fault = "tp of replica 1, stage 0:5:inside:all-reduce 24",
      .rank = 5,
      .what = {"entered all-reduce 24 of 'tp of replica 1, stage 0' (step 2) but has not moved for "
               "T s"},
      .waiters = "rank 4 has waited in all-reduce 24 of 'tp of replica 1, stage 0' (step 2) for T "
                 "s; rank 6 has waited in receive 3 from rank 4 of 'hop 0 of replica 1, shard 0' "
                 "(step 2) for T s; rank 7 has waited in receive 3 from rank 5 of 'hop 0 of "
                 "replica 1, shard 1' (step 2) for T s"}},
    {"tensor_group_of_replica_1_stage_1",
     {.fault = "tp of replica 1, stage 1:6:before:all-gather 27",
      .rank = 6,
      .what = {"never entered all-gather 27 of 'tp of replica 1, stage 1' (step 2); it was last "
               "heard computing step 2"},
      .waiters =
          "rank 7 has waited in all-gather 27 of 'tp of replica 1, stage 1' (step 2) for T s",
      .flag = "--no-overlap"},
     {.fault = "tp of replica 1, stage 1:7:inside:all-reduce 19",
      .rank = 7,
      .what = {"entered all-reduce 19 of 'tp of replica 1, stage 1' (step 2) but has not moved for "
               "T s"},
      .waiters = "rank 6 has waited in all-reduce 19 of 'tp of replica 1, stage 1' (step 2) for T "
                 "s; ranks 4, 5 have waited in receive 3 from rank 6 of 'tokens of replica 1' "
                 "(step 3) for T s"}},
};

const GroupCase kMessageCases[] = {
    // Activations of step 2.
    {"hops_of_shard_0",
     {.fault = "hop 0 of replica 0, shard 0:0:before:send 3",
      .rank = 0,
      .what = {"never entered send 3 to rank 2 of 'hop 0 of replica 0, shard 0' (step 2); it was "
               "last heard computing step 2"},
      .waiters = "rank 3 has waited in all-reduce 19 of 'tp of replica 0, stage 1' (step 2) for T "
                 "s; rank 2 has waited in receive 3 from rank 0 of 'hop 0 of replica 0, shard 0' "
                 "(step 2) for T s; rank 1 has waited in receive 3 from rank 2 of 'tokens of "
                 "replica 0' (step 3) for T s"},
     {.fault = "hop 0 of replica 1, shard 0:4:inside:send 3",
      .rank = 4,
      .what = {"entered send 3 to rank 6 of 'hop 0 of replica 1, shard 0' (step 2) but has not "
               "moved for T s"},
      .waiters = "rank 7 has waited in all-reduce 19 of 'tp of replica 1, stage 1' (step 2) for T "
                 "s; rank 6 has waited in receive 3 from rank 4 of 'hop 0 of replica 1, shard 0' "
                 "(step 2) for T s; rank 5 has waited in receive 3 from rank 6 of 'tokens of "
                 "replica 1' (step 3) for T s"}},
    {"hops_of_shard_1",
     {.fault = "hop 0 of replica 1, shard 1:5:before:send 3",
      .rank = 5,
      .what = {"never entered send 3 to rank 7 of 'hop 0 of replica 1, shard 1' (step 2); it was "
               "last heard computing step 2"},
      .waiters = "rank 6 has waited in all-reduce 19 of 'tp of replica 1, stage 1' (step 2) for T "
                 "s; rank 7 has waited in receive 3 from rank 5 of 'hop 0 of replica 1, shard 1' "
                 "(step 2) for T s; rank 4 has waited in receive 3 from rank 6 of 'tokens of "
                 "replica 1' (step 3) for T s"},
     {.fault = "hop 0 of replica 0, shard 1:3:inside:receive 3",
      .rank = 3,
      .what = {"entered receive 3 from rank 1 of 'hop 0 of replica 0, shard 1' (step 2) but has "
               "not moved for T s"},
      .waiters =
          "rank 2 has waited in all-reduce 19 of 'tp of replica 0, stage 1' (step 2) for T s; rank "
          "0 has waited in receive 3 from rank 2 of 'tokens of replica 0' (step 3) for T s; rank 1 "
          "has waited in send 3 to rank 3 of 'hop 0 of replica 0, shard 1' (step 2) for T s"}},
    // Of step 1.
    {"tokens",
     {.fault = "tokens of replica 0:2:before:send 3",
      .rank = 2,
      .what = {"never entered send 2 to rank 0 of 'tokens of replica 0' (step 2); it was last "
               "heard computing step 1",
               "never entered send 2 to rank 1 of 'tokens of replica 0' (step 2); it was last "
               "heard computing step 1"},
      .waiters = "ranks 0, 1 have waited in receive 2 from rank 2 of 'tokens of replica 0' (step "
                 "2) for T s; rank 3 has waited in receive 3 from rank 1 of 'hop 0 of replica 0, "
                 "shard 1' (step 2) for T s"},
     {.fault = "tokens of replica 1:5:inside:receive 2",
      .rank = 5,
      .what = {"entered receive 2 from rank 6 of 'tokens of replica 1' (step 2) but has not moved "
               "for T s"},
      .waiters = "rank 4 has waited in all-reduce 19 of 'tp of replica 1, stage 0' (step 2) for T "
                 "s; rank 6 has waited in receive 3 from rank 4 of 'hop 0 of replica 1, shard 0' "
                 "(step 2) for T s; rank 7 has waited in receive 3 from rank 5 of 'hop 0 of "
                 "replica 1, shard 1' (step 2) for T s"}},
};

INSTANTIATE_TEST_SUITE_P(Tensor, GroupHangTest, ::testing::ValuesIn(kTensorCases),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Messages, GroupHangTest, ::testing::ValuesIn(kMessageCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::testing

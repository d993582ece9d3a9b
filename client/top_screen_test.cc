#include "client/top_screen.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::client {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

namespace wire = ::skein::cluster::v1;

wire::ClusterStatus Status() {
  wire::ClusterStatus status;
  status.set_version("1.2");
  status.set_model_name("bard");
  status.set_serving(true);
  status.set_uptime_seconds(3725.4);
  status.set_running_requests(3);
  status.set_queued_requests(2);
  status.set_migrations(1);
  status.mutable_latencies()->mutable_first_token()->set_count(9);
  status.mutable_latencies()->mutable_first_token()->set_p50_seconds(0.0901);
  status.mutable_latencies()->mutable_first_token()->set_p99_seconds(1.5);
  wire::JobStatus& job = *status.add_jobs();
  job.set_job_id("5f0c");
  job.set_state("serving");
  job.set_size(2);
  job.mutable_plan()->set_model_name("bard");
  job.mutable_plan()->mutable_layout()->set_tp_size(2);
  job.mutable_plan()->mutable_layout()->set_pp_size(1);
  job.mutable_plan()->mutable_layout()->set_dp_size(1);
  for (int i = 0; i < 2; ++i) {
    wire::RankStatus& rank = *job.add_ranks();
    rank.set_rank(i);
    rank.set_host(absl::StrCat("node", i));
    rank.set_state(i == 0 ? "ready" : "loading");
    rank.set_heartbeat_age_seconds(0.25);
  }
  wire::RankTimes& times = *job.mutable_ranks(0)->mutable_recent_times();
  times.set_compute_seconds(5);
  times.set_transfer_seconds(1);
  times.set_bubble_seconds(2.5);
  times.set_waiting_seconds(1.5);
  wire::ReplicaStatus& replica = *job.add_replicas();
  replica.set_tokens_per_second(123.44);
  replica.mutable_load()->set_running(3);
  replica.mutable_load()->set_used_pages(25);
  replica.mutable_load()->set_cached_pages(35);
  replica.mutable_load()->set_total_pages(100);
  replica.mutable_load()->set_prompt_tokens(400);
  replica.mutable_load()->set_cached_tokens(100);
  replica.mutable_decode()->set_measured_seconds(0.0025);
  replica.mutable_decode()->set_predicted_seconds(0.002);
  replica.mutable_prompt()->set_measured_seconds(0.0123);
  replica.mutable_prompt()->set_predicted_seconds(0.011);
  wire::JobStatus& over = *status.add_jobs();
  over.set_job_id("dead");
  over.set_state("lost");
  over.set_over_seconds(75);
  over.set_detail("rank 1 on node7 (pid 4711) is lost: it has been silent for 3003 ms; " +
                  std::string(100, 'x') + " ranks 0 and 2 wait for it");
  *over.add_replicas() = replica;  // counts no more
  return status;
}

std::string Text(const std::vector<std::string>& lines) { return absl::StrJoin(lines, "\n"); }

TEST(ScreenTest, AllOfItInWordsAndNumbers) {
  const std::vector<std::string> lines = Screen(Status(), "", {.columns = 100});
  EXPECT_EQ(lines[0], "skein 1.2, bard: serving, up 1h2m5s");
  EXPECT_EQ(lines[1], "123.4 tokens/s; 3 requests run, 2 are queued; 1 answers moved");
  EXPECT_EQ(lines[2], "first token 90.1 ms (99%: 1.5 s); between tokens -");
  EXPECT_EQ(lines[3], "pages: 25% used (25), 35 cached, of 100; prefix cache: 25% of 400 tokens");
  EXPECT_THAT(lines, Contains("job 5f0c: serving, tp=2,pp=1,dp=1 of bard, 2 of 2 ranks"));
  EXPECT_THAT(lines, Contains("        0     123.4        3        0       25       35      100"
                              "     2.5 ms       2 ms"));
  EXPECT_THAT(lines, Contains(std::string(52, ' ') + "with prompts    12.3 ms      11 ms"));
  EXPECT_THAT(lines, Contains("     0  node0             ready      250 ms    50%    10%    25%"
                              "    15%  ######=~~~.."));
  EXPECT_THAT(lines, Contains("     1  node1             loading    250 ms"));
  EXPECT_THAT(lines, Contains("job dead: lost 1m15s ago"));
}

TEST(ScreenTest, LinesFitAndLongReasonsGoOn) {
  for (const int columns : {20, 33, 80, 200}) {
    const std::vector<std::string> lines = Screen(Status(), "", {.columns = columns});
    EXPECT_THAT(lines, Each(SizeIs(::testing::Le(static_cast<size_t>(columns)))));
    std::string reason = Text(lines);
    reason = reason.substr(reason.find('\n', reason.find("job dead")));
    std::erase_if(reason, [](char c) { return c == ' ' || c == '\n'; });
    std::string whole = Status().jobs(1).detail();
    std::erase_if(whole, [](char c) { return c == ' '; });
    EXPECT_EQ(reason, whole) << columns;
  }
}

TEST(ScreenTest, WhatDoesNotFitIsCounted) {
  const size_t all = Screen(Status(), "", {}).size();
  const std::vector<std::string> lines = Screen(Status(), "", {.rows = 6});
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines.back(), absl::StrCat("... ", all - 5, " more lines: make the window larger"));
  EXPECT_EQ(Screen(Status(), "", {.rows = static_cast<int>(all)}).size(), all);
}

TEST(ScreenTest, NamesObeyNoTerminalAndColoursAreAsked) {
  wire::ClusterStatus status = Status();
  status.set_model_name("\x1b[2Jevil\x07");
  status.mutable_jobs(0)->mutable_ranks(0)->set_host("\x1b]0;title\x07 host\xc3\xa9");
  status.mutable_jobs(1)->set_detail("line\r\nline \x1b[31m");
  const std::string plain = Text(Screen(status, "lost\x1b", {}));
  EXPECT_THAT(plain, AllOf(HasSubstr("\\x1b[2Jevil\\x07"), Not(HasSubstr("\x1b")),
                           Not(HasSubstr("\x07")), Not(HasSubstr("\r"))));
  EXPECT_THAT(Text(Screen(status, "", {.colours = true})), StartsWith("\x1b[32mskein 1.2"));
}

TEST(ScreenTest, ALostCoordinatorIsToldBeforeWhatIsOld) {
  const std::vector<std::string> lines = Screen(Status(), "nobody listens", {});
  EXPECT_EQ(lines[0], "nobody listens");
  EXPECT_THAT(lines[1], StartsWith("skein 1.2"));
  EXPECT_EQ(Screen({}, "nobody listens", {}), std::vector<std::string>{"nobody listens"});
  wire::ClusterStatus status = Status();
  status.set_serving(false);
  EXPECT_THAT(Screen(status, "", {})[0], HasSubstr("bard: no replica serves"));
  status.set_draining(true);
  EXPECT_THAT(Screen(status, "", {})[0], HasSubstr("bard: draining"));
}

}  // namespace
}  // namespace skein::client

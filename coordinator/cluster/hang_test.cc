#include "coordinator/cluster/hang.h"

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

constexpr double kDeadline = 30;
constexpr const char* kTp0 = "tp of replica 0, stage 0";
constexpr const char* kTp1 = "tp of replica 0, stage 1";
constexpr const char* kReplica = "replica 0";

// A rank between calls, in step 41; `tp` is the number of its last collective.
RankActivity Computing(const std::string& group, int64_t tp) {
  return {{.step = 41, .entered = {{group, tp}, {kReplica, 3}}}};
}

RankActivity In(const std::string& group, const std::string& name, int64_t number,
                std::vector<int32_t> others, double seconds) {
  RankActivity rank = Computing(group, number);
  rank.operation = {.group = group,
                    .call = {.operation = *comm::ParseOperation(name), .number = number},
                    .others = std::move(others),
                    .elapsed = absl::Seconds(seconds)};
  rank.deadline = absl::Seconds(kDeadline);
  return rank;
}

// `tp`: as for Computing, of `group`.
RankActivity InMessage(const std::string& group, int64_t tp, const std::string& name,
                       int64_t number, int32_t peer, double seconds) {
  RankActivity rank = Computing(group, tp);
  rank.operation = {
      .group = kReplica,
      .call = {.operation = *comm::ParseOperation(name), .peer = peer, .number = number},
      .others = {peer},
      .elapsed = absl::Seconds(seconds)};
  rank.deadline = absl::Seconds(kDeadline);
  return rank;
}

// Its thread has not looked for the others for `still` seconds.
RankActivity Still(RankActivity rank, double still) {
  rank.operation->still = absl::Seconds(still);
  return rank;
}

// With another deadline.
RankActivity Early(RankActivity rank, double deadline) {
  rank.deadline = absl::Seconds(deadline);
  return rank;
}

// Its last heartbeat is `age` seconds old.
RankActivity Aged(RankActivity rank, double age) {
  rank.age = absl::Seconds(age);
  return rank;
}

struct HangCase {
  std::string name;
  std::vector<RankActivity> ranks;
  std::optional<int32_t> culprit;
  std::string why;
};

void PrintTo(const HangCase& c, std::ostream* out) { *out << c.name; }

class HangTest : public ::testing::TestWithParam<HangCase> {};

TEST_P(HangTest, FindsWhoIsToBlame) {
  const HangCase& c = GetParam();
  const std::optional<Hang> hang = FindHang(c.ranks);
  ASSERT_EQ(hang.has_value(), c.culprit.has_value()) << (hang ? hang->why : "");
  if (!hang.has_value()) return;
  EXPECT_EQ(hang->rank, *c.culprit);
  EXPECT_EQ(hang->why, c.why);
}

RankActivity Idle() { return {{.entered = {{kTp0, 811}, {kReplica, 3}}}}; }

INSTANTIATE_TEST_SUITE_P(
    Heartbeats, HangTest,
    ::testing::Values(
        HangCase{"nothing_known", {{}, {}}, std::nullopt, ""},
        HangCase{"within_the_deadline",
                 {In(kTp0, "all-reduce", 812, {1}, 29.9), Computing(kTp0, 811)},
                 std::nullopt,
                 ""},
        HangCase{"one_computes",
                 {In(kTp0, "all-reduce", 812, {1}, 30.5), Computing(kTp0, 811)},
                 1,
                 "it never entered all-reduce 812 of 'tp of replica 0, stage 0' (step 41); it was "
                 "last heard computing step 41; rank 0 has waited in all-reduce 812 of 'tp of "
                 "replica 0, stage 0' (step 41) for 30.5 s, past the deadline of 30.0 s"},
        HangCase{"one_never_took_the_order",
                 {In(kTp0, "all-reduce", 812, {1}, 30.5), Idle()},
                 1,
                 "it never entered all-reduce 812 of 'tp of replica 0, stage 0' (step 41); it was "
                 "last heard waiting for an order; rank 0 has waited in all-reduce 812 of 'tp of "
                 "replica 0, stage 0' (step 41) for 30.5 s, past the deadline of 30.0 s"},
        HangCase{"one_is_stuck_in_the_call_before",
                 {In(kTp0, "all-reduce", 812, {1}, 30.5), In(kTp0, "all-reduce", 811, {0}, 30.6)},
                 1,
                 "it never entered all-reduce 812 of 'tp of replica 0, stage 0' (step 41); it was "
                 "last heard in all-reduce 811 of 'tp of replica 0, stage 0' (step 41); rank 0 has "
                 "waited in all-reduce 812 of 'tp of replica 0, stage 0' (step 41) for 30.5 s, "
                 "past the deadline of 30.0 s"},
        HangCase{"two_of_four",
                 {In(kTp0, "all-gather", 9, {1, 2, 3}, 30.2), Computing(kTp0, 8),
                  In(kTp0, "all-gather", 9, {0, 1, 3}, 31), Computing(kTp0, 7)},
                 1,
                 "it never entered all-gather 9 of 'tp of replica 0, stage 0' (step 41), nor did "
                 "rank 3; it was last heard computing step 41; ranks 0, 2 have waited in "
                 "all-gather 9 of 'tp of replica 0, stage 0' (step 41) for 31.0 s, past the "
                 "deadline of 30.0 s"},
        // Rank 2 holds up its shard 3, stage 0's rank 0 for its activations, and so rank 1.
        HangCase{"the_end_of_a_chain",
                 {InMessage(kTp0, 5, "receive", 77, 2, 30.1), In(kTp0, "all-reduce", 6, {0}, 30.2),
                  Computing(kTp1, 3), In(kTp1, "all-reduce", 4, {2}, 30.3)},
                 2,
                 "it never entered all-reduce 4 of 'tp of replica 0, stage 1' (step 41); it was "
                 "last heard computing step 41; rank 3 has waited in all-reduce 4 of 'tp of "
                 "replica 0, stage 1' (step 41) for 30.3 s; rank 1 has waited in all-reduce 6 of "
                 "'tp of replica 0, stage 0' (step 41) for 30.2 s; rank 0 has waited in receive "
                 "77 from rank 2 of 'replica 0' (step 41) for 30.1 s, past the deadline of 30.0 s"},
        HangCase{"a_sender",
                 {Computing(kTp0, 5), InMessage(kTp1, 5, "receive", 77, 0, 31)},
                 0,
                 "it never entered send 77 to rank 1 of 'replica 0' (step 41); it was last heard "
                 "computing step 41; rank 1 has waited in receive 77 from rank 0 of 'replica 0' "
                 "(step 41) for 31.0 s, past the deadline of 30.0 s"},
        HangCase{"a_receiver",
                 {InMessage(kTp0, 5, "send", 9, 1, 31), Computing(kTp1, 5)},
                 1,
                 "it never entered the receive that makes room for send 9 to rank 1 of 'replica 0' "
                 "from rank 0 (step 41); it was last heard computing step 41; rank 0 has waited in "
                 "send 9 to rank 1 of 'replica 0' (step 41) for 31.0 s, past the deadline of "
                 "30.0 s"},
        HangCase{"each_waits_for_the_other",
                 {InMessage(kTp0, 5, "receive", 7, 1, 31), InMessage(kTp1, 5, "receive", 8, 0, 32)},
                 0,
                 "it never entered send 8 to rank 1 of 'replica 0' (step 41); it was last heard in "
                 "receive 7 from rank 1 of 'replica 0' (step 41); rank 1 has waited in receive 8 "
                 "from rank 0 of 'replica 0' (step 41) for 32.0 s, past the deadline of 30.0 s"},
        HangCase{"all_are_inside_and_will_say_who_does_not_finish",
                 {In(kTp0, "all-reduce", 812, {1}, 31), In(kTp0, "all-reduce", 812, {0}, 39.9)},
                 std::nullopt,
                 ""},
        HangCase{"all_are_inside",
                 {In(kTp0, "all-reduce", 812, {1}, 31), In(kTp0, "all-reduce", 812, {0}, 40.1)},
                 1,
                 "all ranks of the group have entered all-reduce 812 of 'tp of replica 0, stage 0' "
                 "(step 41), and it did not end within 30.0 s"},
        HangCase{"one_of_those_inside_does_not_move",
                 {Still(In(kTp0, "all-reduce", 812, {1}, 30.4), 0.001),
                  Still(In(kTp0, "all-reduce", 812, {0}, 30.5), 29.5)},
                 1,
                 "it entered all-reduce 812 of 'tp of replica 0, stage 0' (step 41) but has not "
                 "moved for 29.5 s; rank 0 has waited in all-reduce 812 of 'tp of replica 0, stage "
                 "0' (step 41) for 30.4 s, past the deadline of 30.0 s"},
        HangCase{"two_of_those_inside_do_not_move",
                 {Still(In(kTp0, "all-reduce", 812, {1, 2}, 30.5), 20),
                  Still(In(kTp0, "all-reduce", 812, {0, 2}, 30.4), 0.4),
                  Still(In(kTp0, "all-reduce", 812, {0, 1}, 30.3), 10)},
                 0,
                 "it entered all-reduce 812 of 'tp of replica 0, stage 0' (step 41) but has not "
                 "moved for 20.0 s, nor has rank 2; rank 1 has waited in all-reduce 812 of 'tp of "
                 "replica 0, stage 0' (step 41) for 30.4 s, past the deadline of 30.0 s"},
        HangCase{"one_inside_does_not_move_and_another_never_came",
                 {Computing(kTp0, 811), Still(In(kTp0, "all-reduce", 812, {0, 2}, 30.5), 20),
                  Still(In(kTp0, "all-reduce", 812, {0, 1}, 30.3), 0.1)},
                 0,
                 "it never entered all-reduce 812 of 'tp of replica 0, stage 0' (step 41); it was "
                 "last heard computing step 41; rank 2 has waited in all-reduce 812 of 'tp of "
                 "replica 0, stage 0' (step 41) for 30.3 s, past the deadline of 30.0 s"},
        HangCase{"it_stopped_a_moment_ago",
                 {Still(In(kTp0, "all-reduce", 812, {1}, 31), 0.001),
                  Still(In(kTp0, "all-reduce", 812, {0}, 31), 4.9)},
                 std::nullopt,
                 ""},
        // Rank 1 waits for rank 0 as far as is known, but may be the one that is stuck.
        HangCase{"a_rank_on_the_way_may_be_stuck",
                 {Computing(kTp0, 5), Still(In(kTp0, "all-reduce", 6, {0}, 1.2), 1.2),
                  Early(InMessage(kTp1, 5, "receive", 77, 1, 4.2), 4)},
                 std::nullopt,
                 ""},
        // It would be known by now.
        HangCase{"a_rank_on_the_way_looks_slowly",
                 {Computing(kTp0, 5), Still(In(kTp0, "all-reduce", 6, {0}, 7), 1.2),
                  Early(InMessage(kTp1, 5, "receive", 77, 1, 7), 4)},
                 0,
                 "it never entered all-reduce 6 of 'tp of replica 0, stage 0' (step 41); it was "
                 "last heard computing step 41; rank 1 has waited in all-reduce 6 of 'tp of "
                 "replica 0, stage 0' (step 41) for 7.0 s; rank 2 has waited in receive 77 from "
                 "rank 1 of 'replica 0' (step 41) for 7.0 s, past the deadline of 4.0 s"},
        HangCase{"a_rank_on_the_way_was_not_heard_of_lately",
                 {Computing(kTp0, 5), Aged(In(kTp0, "all-reduce", 6, {0}, 31), 1.6),
                  InMessage(kTp1, 5, "receive", 77, 1, 31)},
                 std::nullopt,
                 ""},
        HangCase{"an_end_of_a_chain_was_not_heard_of_lately",
                 {Aged(Computing(kTp0, 5), 1.6), In(kTp0, "all-reduce", 6, {0}, 31)},
                 std::nullopt,
                 ""},
        // Nobody takes it for silent: --heartbeat-timeout is long.
        HangCase{"an_end_of_a_chain_was_not_heard_of_for_long",
                 {Aged(Computing(kTp0, 5), 34), In(kTp0, "all-reduce", 6, {0}, 34.1)},
                 0,
                 "it never entered all-reduce 6 of 'tp of replica 0, stage 0' (step 41); it was "
                 "last heard computing step 41; rank 1 has waited in all-reduce 6 of 'tp of "
                 "replica 0, stage 0' (step 41) for 34.1 s, past the deadline of 30.0 s"},
        HangCase{"it_was_heard_of_just_now_and_moves",
                 {Computing(kTp0, 5), Aged(Still(In(kTp0, "all-reduce", 6, {0}, 31), 0.3), 0.5)},
                 0,
                 "it never entered all-reduce 6 of 'tp of replica 0, stage 0' (step 41); it was "
                 "last heard computing step 41; rank 1 has waited in all-reduce 6 of 'tp of "
                 "replica 0, stage 0' (step 41) for 31.0 s, past the deadline of 30.0 s"},
        HangCase{"where_nobody_looks_nobody_stands_still",
                 {Still(In(kTp0, "all-reduce", 812, {1}, 31), 31),
                  Still(In(kTp0, "all-reduce", 812, {0}, 39), 39)},
                 std::nullopt,
                 ""},
        HangCase{"it_does_not_move_in_the_call_before",
                 {Still(In(kTp0, "all-reduce", 812, {1}, 30.5), 0),
                  Still(In(kTp0, "all-reduce", 811, {0}, 30.6), 30.6)},
                 1,
                 "it entered all-reduce 811 of 'tp of replica 0, stage 0' (step 41) but has not "
                 "moved for 30.6 s; rank 0 has waited in all-reduce 812 of 'tp of replica 0, stage "
                 "0' (step 41) for 30.5 s, past the deadline of 30.0 s"},
        // Rank 0 waits for the activations of rank 2, which waits for its shard.
        HangCase{"the_end_of_a_chain_does_not_move",
                 {InMessage(kTp0, 5, "receive", 77, 2, 30.1), In(kTp0, "all-reduce", 6, {0}, 30.2),
                  In(kTp1, "all-reduce", 4, {3}, 30.3),
                  Still(In(kTp1, "all-reduce", 4, {2}, 30.3), 30.3)},
                 3,
                 "it entered all-reduce 4 of 'tp of replica 0, stage 1' (step 41) but has not "
                 "moved for 30.3 s; rank 2 has waited in all-reduce 4 of 'tp of replica 0, stage "
                 "1' (step 41) for 30.3 s; rank 1 has waited in all-reduce 6 of 'tp of replica 0, "
                 "stage 0' (step 41) for 30.2 s; rank 0 has waited in receive 77 from rank 2 of "
                 "'replica 0' (step 41) for 30.1 s, past the deadline of 30.0 s"},
        HangCase{"a_sender_does_not_move",
                 {Still(InMessage(kTp0, 5, "send", 77, 1, 32), 32),
                  InMessage(kTp1, 5, "receive", 77, 0, 31)},
                 0,
                 "it entered send 77 to rank 1 of 'replica 0' (step 41) but has not moved for 32.0 "
                 "s; rank 1 has waited in receive 77 from rank 0 of 'replica 0' (step 41) for 31.0 "
                 "s, past the deadline of 30.0 s"},
        // Rank 0 looks, so rank 1 would.
        HangCase{"nobody_waits_for_it_yet",
                 {In(kTp0, "all-reduce", 6, {2}, 3),
                  Still(InMessage(kTp1, 5, "send", 9, 2, 31), 31), Computing(kTp1, 5)},
                 1,
                 "it entered send 9 to rank 2 of 'replica 0' (step 41) but has not moved for 31.0 "
                 "s; no rank waits for it, past the deadline of 30.0 s"},
        // Rank 0's heartbeat is half a second older: the missing rank has come meanwhile.
        HangCase{"it_ended_meanwhile",
                 {In(kTp0, "all-reduce", 812, {1}, 30.2), Computing(kTp0, 812)},
                 std::nullopt,
                 ""},
        // Of ranks 1 and 2, which are no longer in the call, one never was.
        HangCase{
            "one_has_left_an_older_heartbeat_waits",
            {In(kTp0, "all-reduce", 812, {1, 2}, 30.2), Computing(kTp0, 813), Computing(kTp0, 811)},
            2,
            "it never entered all-reduce 812 of 'tp of replica 0, stage 0' (step 41); it was "
            "last heard computing step 41; rank 0 has waited in all-reduce 812 of 'tp of "
            "replica 0, stage 0' (step 41) for 30.2 s, past the deadline of 30.0 s"},
        HangCase{"ranks_that_do_not_exist_are_ignored",
                 {In(kTp0, "all-reduce", 812, {7, -1}, 31)},
                 std::nullopt,
                 ""}),
    [](const auto& info) { return info.param.name; });

struct LossCase {
  std::string name;
  std::vector<RankActivity> ranks;
  int32_t lost;
  std::string says;
};

void PrintTo(const LossCase& c, std::ostream* out) { *out << c.name; }

class LossTest : public ::testing::TestWithParam<LossCase> {};

TEST_P(LossTest, SaysWhatItDidAndWhoWaits) {
  const LossCase& c = GetParam();
  EXPECT_EQ(DescribeLoss(c.ranks, c.lost), c.says);
}

INSTANTIATE_TEST_SUITE_P(
    Heartbeats, LossTest,
    ::testing::Values(
        LossCase{"nobody_worked",
                 {{}, {}},
                 1,
                 "it was last heard waiting for an order; no rank waits for it"},
        LossCase{"its_shard_waits",
                 {In(kTp0, "all-reduce", 812, {1}, 2.8), In(kTp0, "all-reduce", 811, {0}, 0)},
                 1,
                 "it was last heard in all-reduce 811 of 'tp of replica 0, stage 0' (step 41); "
                 "rank 0 has waited in all-reduce 812 of 'tp of replica 0, stage 0' (step 41) for "
                 "2.8 s"},
        // It entered after its last heartbeat; or it stopped before it had sent everything.
        LossCase{"all_had_entered",
                 {In(kTp0, "all-reduce", 812, {1}, 2.8), In(kTp0, "all-reduce", 812, {0}, 0)},
                 1,
                 "it was last heard in all-reduce 812 of 'tp of replica 0, stage 0' (step 41); "
                 "rank 0 has waited in all-reduce 812 of 'tp of replica 0, stage 0' (step 41) for "
                 "2.8 s"},
        LossCase{"those_who_wait_for_waiters_too",
                 {InMessage(kTp0, 5, "receive", 77, 2, 2.7), In(kTp0, "all-reduce", 6, {0}, 2.6),
                  In(kTp1, "all-reduce", 4, {3}, 2.8), Computing(kTp1, 3)},
                 3,
                 "it was last heard computing step 41; rank 2 has waited in all-reduce 4 of 'tp of "
                 "replica 0, stage 1' (step 41) for 2.8 s; rank 1 has waited in all-reduce 6 of "
                 "'tp of replica 0, stage 0' (step 41) for 2.6 s; rank 0 has waited in receive 77 "
                 "from rank 2 of 'replica 0' (step 41) for 2.7 s"},
        LossCase{"a_moment_is_no_wait",
                 {In(kTp0, "all-reduce", 812, {1}, 0.001), Computing(kTp0, 811)},
                 1,
                 "it was last heard computing step 41; no rank waits for it"},
        LossCase{"others_replicas_do_not_matter",
                 {In(kTp0, "all-reduce", 812, {1}, 2.8), Computing(kTp0, 811), Computing(kTp1, 1)},
                 2,
                 "it was last heard computing step 41; no rank waits for it"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::coordinator

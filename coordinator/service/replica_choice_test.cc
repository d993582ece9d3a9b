#include "coordinator/service/replica_choice.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/service/prefix_index.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

TEST(ChooseReplicaTest, AFreeSlotThenTheLeastWorkWithoutWhatIsCached) {
  struct Case {
    std::string name;
    std::vector<ReplicaView> replicas;  // sequences, slots, tokens, cached
    std::optional<size_t> want;
  };
  const std::vector<Case> cases = {
      {"none", {}, std::nullopt},
      {"full", {{4, 2, 0, 900}}, std::nullopt},
      {"one", {{3, 2, 50, 0}}, 0},
      {"less work", {{2, 4, 90, 0}, {3, 4, 50, 0}}, 1},
      {"equal work, fewer sequences", {{2, 4, 50, 0}, {1, 4, 50, 0}}, 1},
      {"all equal", {{1, 4, 50, 0}, {1, 4, 50, 0}}, 0},
      {"the prefix decides between idle ones", {{0, 4, 0, 0}, {0, 4, 0, 16}}, 1},
      {"the longest prefix", {{0, 4, 0, 16}, {0, 4, 0, 48}, {0, 4, 0, 32}}, 1},
      {"a prefix outweighs less work than its own", {{1, 4, 999, 0}, {2, 4, 1998, 1000}}, 1},
      {"but no more than that", {{1, 4, 999, 0}, {2, 4, 2000, 1000}}, 0},
      {"a free slot goes before a prefix", {{4, 4, 10, 900}, {3, 4, 5000, 0}}, 1},
      {"without a free slot it counts again", {{4, 4, 500, 900}, {4, 4, 10, 0}}, 0},
      {"a full one is none, whatever it has", {{8, 4, 0, 900}, {7, 4, 5000, 0}}, 1},
  };
  for (const Case& c : cases) EXPECT_EQ(ChooseReplica(c.replicas), c.want) << c.name;
}

TEST(CheckFitsTest, EveryLimitCounts) {
  struct Case {
    std::string name;
    Demand demand;         // answers, prompt, max_tokens
    ReplicaLimits limits;  // slots, context_length
    std::string want;      // the refusal; "" for none
  };
  const std::vector<Case> cases = {
      {"all of each", {2, 60, 40}, {2, 100}, ""},
      {"slots", {3, 60, 40}, {2, 100}, "it runs 2 sequences at once, fewer than the 3 answers"},
      {"context",
       {2, 60, 41},
       {2, 100},
       "its context of 100 tokens is too short for a prompt of 60 and an answer of 41"},
  };
  for (const Case& c : cases) {
    const absl::Status fits = CheckFits(c.demand, c.limits);
    EXPECT_EQ(fits.message(), c.want) << c.name;
    EXPECT_EQ(fits.code(),
              c.want.empty() ? absl::StatusCode::kOk : absl::StatusCode::kFailedPrecondition)
        << c.name;
  }
}

using Tokens = std::vector<int32_t>;

TEST(PrefixIndexTest, TheLongestBeginningInWholePagesIsFound) {
  PrefixIndex index(/*page_size=*/2, /*pages=*/100);
  EXPECT_EQ(index.Match({1, 2, 3}), 0);
  index.Insert({1, 2, 3, 4, 5});
  struct Case {
    Tokens prompt;
    int64_t want;
  };
  const std::vector<Case> cases = {
      {{1, 2, 3, 4, 5}, 4},
      {{1, 2, 3, 4, 6, 7}, 4},
      {{1, 2, 3, 9}, 2},
      {{1, 9, 3, 4}, 0},  // a page counts with all that is before it
      {{3, 4, 1, 2}, 0},  //
      {{1, 2, 3, 4}, 3},  // the last token is computed in any case
      {{5, 6}, 0},        // half a page is none
      {{1}, 0},
  };
  for (const Case& c : cases) EXPECT_EQ(index.Match(c.prompt), c.want);
}

TEST(PrefixIndexTest, WhatIsUnusedLongestGivesWayFromItsEnd) {
  PrefixIndex index(2, 4);
  index.Insert({1, 1, 2, 2, 3, 3});
  index.Insert({7, 7, 8, 8});
  EXPECT_EQ(index.size(), 4u);
  EXPECT_EQ(index.Match({1, 1, 2, 2, 3, 3, 0}), 4);
  index.Insert({1, 1, 2, 2});  // used again
  index.Insert({5, 5});
  EXPECT_EQ(index.Match({1, 1, 2, 2, 0}), 4);
  EXPECT_EQ(index.Match({7, 7, 8, 8, 0}), 2);
  EXPECT_EQ(index.size(), 4u);
}

TEST(PrefixIndexTest, AReplicaWithoutPagesHasNone) {
  PrefixIndex none(0, 0);
  none.Insert({1, 2, 3});
  EXPECT_EQ(none.Match({1, 2, 3}), 0);
  EXPECT_EQ(none.size(), 0u);
}

}  // namespace
}  // namespace skein::coordinator

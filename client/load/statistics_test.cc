#include "client/load/statistics.h"

#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::client {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// In milliseconds.
RequestRecord Record(int sent, std::vector<int> tokens, int ended, std::string code = "OK") {
  RequestRecord record;
  record.code = std::move(code);
  record.prompt_tokens = 10;
  record.answer_tokens = static_cast<int64_t>(tokens.size());
  record.sent = absl::Milliseconds(sent);
  record.ended = absl::Milliseconds(ended);
  for (const int token : tokens) record.tokens.push_back(absl::Milliseconds(token));
  return record;
}

TEST(PercentileTest, InterpolatesBetweenTheNearestValues) {
  struct Case {
    std::vector<double> sorted;
    double percent;
    double wanted;
  };
  // By hand: position percent / 100 * (n - 1), from 0.
  for (const Case& c : std::vector<Case>{
           {{}, 50, 0},
           {{7}, 0, 7},
           {{7}, 99, 7},
           {{1, 2}, 50, 1.5},
           {{1, 2, 4}, 50, 2},
           {{1, 2, 4}, 75, 3},
           {{10, 20, 30, 40, 50}, 90, 46},
           {{10, 20, 30, 40, 50}, 99, 49.6},
           {{10, 20, 30, 40, 50}, 100, 50},
           {{0, 0, 0, 1000}, 50, 0},
       }) {
    EXPECT_DOUBLE_EQ(Percentile(c.sorted, c.percent), c.wanted)
        << c.sorted.size() << " values, " << c.percent;
  }
}

TEST(DescribeTest, SortsAndAverages) {
  const Distribution distribution = Describe({3, 1, 8});
  EXPECT_THAT(distribution.sorted, ElementsAre(1, 3, 8));
  EXPECT_DOUBLE_EQ(distribution.mean, 4);
  EXPECT_DOUBLE_EQ(distribution.percentile(50), 3);
  EXPECT_DOUBLE_EQ(Describe({}).mean, 0);
}

TEST(RequestTest, TimesOfOneRequest) {
  const RequestRecord record = Record(100, {150, 170, 230}, 240);
  EXPECT_EQ(TimeToFirstToken(record), absl::Milliseconds(50));
  EXPECT_EQ(TimePerOutputToken(record), absl::Milliseconds(40));
  EXPECT_EQ(TimeToFirstToken(Record(0, {}, 5)), std::nullopt);
  EXPECT_EQ(TimePerOutputToken(Record(0, {3}, 5)), std::nullopt);
}

TEST(SummarizeTest, AddsUpWhatEndedOk) {
  RequestRecord short_answer = Record(500, {600}, 2000);
  short_answer.answer_tokens = 4;
  const Summary summary = Summarize(
      {Record(0, {100, 200, 400}, 410), short_answer, Record(0, {50, 60}, 4000, "UNAVAILABLE"),
       Record(0, {}, 10, "RESOURCE_EXHAUSTED"), Record(0, {}, 20, "UNAVAILABLE")},
      {});
  EXPECT_EQ(summary.requests, 5);
  EXPECT_EQ(summary.succeeded, 2);
  EXPECT_EQ(summary.short_answers, 1);
  EXPECT_THAT(summary.errors, ElementsAre(Pair("RESOURCE_EXHAUSTED", 1), Pair("UNAVAILABLE", 2)));
  EXPECT_EQ(summary.prompt_tokens, 20);
  EXPECT_EQ(summary.output_tokens, 4);
  EXPECT_DOUBLE_EQ(summary.seconds, 4);
  EXPECT_DOUBLE_EQ(summary.requests_per_s, 0.5);
  EXPECT_DOUBLE_EQ(summary.tokens_per_s, 1);
  EXPECT_EQ(summary.good, 2);
  EXPECT_THAT(summary.ttft.sorted, ElementsAre(0.1, 0.1));
  EXPECT_THAT(summary.tpot.sorted, ElementsAre(0.15));
  EXPECT_THAT(summary.inter_token.sorted, ElementsAre(0.1, 0.2));
  EXPECT_THAT(summary.latency.sorted, ElementsAre(0.41, 1.5));
}

TEST(SummarizeTest, GoodputCountsRequestsWithinBothLimits) {
  const std::vector<RequestRecord> records = {
      Record(0, {100, 110, 120}, 120),  // both
      Record(0, {100, 200, 300}, 300),  // slow tokens
      Record(0, {400, 410, 420}, 420),  // late
      Record(1800, {1900}, 2000),       // a single token has no time per token
      Record(0, {}, 5),                 // nothing came
      Record(0, {10, 20}, 30, "ABORTED"),
  };
  struct Case {
    Limits limits;
    int64_t good;
  };
  for (const auto& [limits, good] : std::vector<Case>{
           {{}, 4},
           {{.ttft = absl::Milliseconds(100)}, 3},
           {{.tpot = absl::Milliseconds(10)}, 3},
           {{.ttft = absl::Milliseconds(100), .tpot = absl::Milliseconds(10)}, 2},
           {{.ttft = absl::Milliseconds(99)}, 0},
       }) {
    const Summary summary = Summarize(records, limits);
    EXPECT_EQ(summary.good, good) << limits.ttft << ", " << limits.tpot;
    EXPECT_DOUBLE_EQ(summary.good_per_s, static_cast<double>(good) / 2);
  }
}

TEST(SummarizeTest, NothingIsZero) {
  const Summary summary = Summarize({}, {});
  EXPECT_EQ(summary.tokens_per_s, 0);
  EXPECT_THAT(summary.ttft.sorted, IsEmpty());
}

TEST(ThroughputTest, CountsTokensByTheirTime) {
  const std::vector<RequestRecord> records = {Record(0, {0, 499, 500, 999}, 1000),
                                              Record(0, {1000, 1999, 2000}, 2000),
                                              Record(0, {100}, 100, "ABORTED")};
  // The token at the end belongs to the last part.
  EXPECT_THAT(Throughput(records, 2, 4), ElementsAre(DoubleNear(4, 1e-9), DoubleNear(4, 1e-9),
                                                     DoubleNear(2, 1e-9), DoubleNear(4, 1e-9)));
  EXPECT_THAT(Throughput({}, 0, 2), ElementsAre(0, 0));
}

}  // namespace
}  // namespace skein::client

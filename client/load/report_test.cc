#include "client/load/report.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Ten requests: the i-th waits 10 (i + 1) ms and then gives 5 tokens, 20 ms apart; one more fails.
class ReportTest : public ::testing::Test {
 protected:
  ReportTest() {
    for (int i = 0; i < 10; ++i) {
      RequestRecord record;
      record.prompt_tokens = 3;
      record.answer_tokens = 5;
      for (int token = 0; token < 5; ++token) {
        record.tokens.push_back(absl::Milliseconds(10 * (i + 1) + 20 * token));
      }
      record.ended = absl::Milliseconds(200);
      records_.push_back(record);
    }
    records_.emplace_back().code = "UNAVAILABLE";
    test_ = {.model = "a<b",
             .load = "10 streams",
             .lengths = "prompts of 3",
             .limits = {.ttft = absl::Milliseconds(50)},
             .asked = 11,
             .summary = Summarize(records_, {.ttft = absl::Milliseconds(50)}),
             .records = records_};
  }

  std::vector<RequestRecord> records_;
  LoadTest test_;
};

TEST_F(ReportTest, TableHasTheFigures) {
  const std::string table = FormatLoadTest(test_);
  EXPECT_THAT(table, AllOf(HasSubstr("10 of 11 requests succeeded in 0.20 s"),
                           HasSubstr("UNAVAILABLE: 1\n"), HasSubstr("50.00 requests/s\n"),
                           HasSubstr("250.00 tokens/s\n"),
                           HasSubstr("25.00 requests/s (5 of 11 within ttft <= 50ms)")));
  EXPECT_THAT(table,
              HasSubstr("time to first token               55.00      55.00      91.00      99.10"
                        "     100.00\n"));
  EXPECT_THAT(table, HasSubstr("time per output token             20.00 "));
  for (const auto line : absl::StrSplit(table, '\n')) EXPECT_LE(line.size(), 96u) << line;
  EXPECT_THAT(table, Not(HasSubstr("INCOMPLETE")));
  test_.limits = {};
  EXPECT_THAT(FormatLoadTest(test_), Not(HasSubstr("goodput")));
}

TEST_F(ReportTest, JsonHasSummaryAndRequests) {
  const auto json = nlohmann::json::parse(LoadTestToJson(test_));
  EXPECT_EQ(json["succeeded"], 10);
  EXPECT_EQ(json["errors"]["UNAVAILABLE"], 1);
  EXPECT_NEAR(json["tokens_per_second"], 250, 1e-9);
  EXPECT_NEAR(json["ttft"]["p90"], 0.091, 1e-9);
  EXPECT_EQ(json["inter_token"]["count"], 40);
  EXPECT_NEAR(json["goodput"]["ttft_limit"], 0.05, 1e-9);
  EXPECT_TRUE(json["goodput"]["tpot_limit"].is_null());
  ASSERT_EQ(json["records"].size(), 11u);
  EXPECT_NEAR(json["records"][1]["tokens"][4], 0.1, 1e-9);
  EXPECT_EQ(json["records"][10]["code"], "UNAVAILABLE");
}

TEST_F(ReportTest, AnInterruptedRunIsIncompleteUnlessAllWasDone) {
  test_.interrupted = true;
  EXPECT_THAT(FormatLoadTest(test_), Not(HasSubstr("INCOMPLETE")));
  EXPECT_EQ(nlohmann::json::parse(LoadTestToJson(test_))["complete"], true);
  records_.emplace_back().code = "CANCELLED";
  test_.records = records_;
  test_.summary = Summarize(records_, test_.limits);
  test_.asked = 20;
  EXPECT_THAT(FormatLoadTest(test_),
              HasSubstr("INCOMPLETE: interrupted when 11 of 20 requests were done\n"));
  const auto json = nlohmann::json::parse(LoadTestToJson(test_));
  EXPECT_EQ(json["complete"], false);
  EXPECT_EQ(json["requests_asked"], 20);
  EXPECT_EQ(json["requests_done"], 11);
  EXPECT_THAT(LoadTestToSvg(test_), HasSubstr("prompts of 3, interrupted</title>"));
}

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST_F(ReportTest, SvgDrawsThreeDistributionsAndThroughput) {
  const std::string svg = LoadTestToSvg(test_);
  EXPECT_THAT(svg, AllOf(HasSubstr("a&lt;b: 10 streams"), HasSubstr("prefers-color-scheme: dark"),
                         HasSubstr("p99: 99.1 ms"), HasSubstr("limit: 50 ms"),
                         Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  EXPECT_EQ(Count(svg, "<polyline"), 4u);
  EXPECT_EQ(Count(svg, "<circle"), 9u);
  EXPECT_EQ(Count(svg, "<text"), Count(svg, "</text>"));
}

TEST_F(ReportTest, NothingMeasuredIsStillAReport) {
  LoadTest empty;
  EXPECT_THAT(FormatLoadTest(empty), HasSubstr("0 of 0 requests"));
  EXPECT_THAT(LoadTestToSvg(empty),
              AllOf(HasSubstr("</svg>"), Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  EXPECT_EQ(nlohmann::json::parse(LoadTestToJson(empty))["requests"], 0);
}

}  // namespace
}  // namespace skein::client

// What a scrape shows after a scripted load, value by value.
#include "coordinator/metrics/metrics.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/metrics/buckets.h"
#include "coordinator/metrics/load_for_tests.h"
#include "coordinator/metrics/scrape_for_tests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

class MetricsTest : public ::testing::Test {
 protected:
  // Of a family with labels, as in `state="serving"`.
  std::string Of(const std::string& family, const std::string& labels) const {
    return scrape_[absl::StrCat(family, "{", labels, "}")];
  }
  // "COUNT SUM" of a histogram, and the bounds around its observations: "COUNT<=BOUND" where the
  // count changes.
  std::string Histogram(const std::string& name, const std::vector<double>& bounds) const {
    std::string text = absl::StrCat(Of(name + "_count", kBard), " ", Of(name + "_sum", kBard));
    std::string before = "0";
    for (const double bound : bounds) {
      const std::string count = Of(name + "_bucket", absl::StrCat(kBard, ",le=\"", bound, "\""));
      if (count != before) absl::StrAppend(&text, " ", count, "<=", bound);
      before = count;
    }
    return text;
  }

  static constexpr char kBard[] = R"(model_name="bard")";
  const std::unique_ptr<Metrics> metrics_ = ScriptedMetrics();
  const Scrape scrape_ = ReadScrape(metrics_->Text());
};

TEST_F(MetricsTest, RequestsAndTokensAreCounted) {
  EXPECT_EQ(scrape_[R"(skein_requests_admitted_total{model_name="bard"})"], "3");
  EXPECT_EQ(scrape_[R"(skein_prompt_tokens_total{model_name="bard"})"], "73");
  EXPECT_EQ(scrape_[R"(skein_generation_tokens_total{model_name="bard"})"], "4");
  const std::string ended = "skein_answers_finished_total";
  EXPECT_EQ(Of(ended, R"(finished_reason="eos",model_name="bard")"), "1");
  EXPECT_EQ(Of(ended, R"(finished_reason="stop",model_name="bard")"), "0");
  EXPECT_EQ(Of(ended, R"(finished_reason="length",model_name="bard")"), "1");
  EXPECT_EQ(Of(ended, R"(finished_reason="error",model_name="bard")"), "1");
  EXPECT_EQ(Of(ended, R"(finished_reason="abort",model_name="bard")"), "1");
}

TEST_F(MetricsTest, ErrorsAreCountedByCodeAndClientsThatGoAreNone) {
  const std::string refused = "skein_requests_refused_total";
  EXPECT_EQ(Of(refused, R"(code="RESOURCE_EXHAUSTED",model_name="bard")"), "2");
  EXPECT_EQ(Of(refused, R"(code="OUT_OF_RANGE",model_name="bard")"), "1");
  EXPECT_EQ(Of(refused, R"(code="UNAVAILABLE",model_name="bard")"), "0");  // there before the first
  EXPECT_EQ(Of("skein_requests_failed_total", R"(code="INTERNAL",model_name="bard")"), "1");
  EXPECT_EQ(Of("skein_requests_failed_total", R"(code="DEADLINE_EXCEEDED",model_name="bard")"),
            "0");
  EXPECT_EQ(Of("skein_requests_failed_total", R"(code="CANCELLED",model_name="bard")"), "");
  const std::string http = "skein_http_requests_total";
  EXPECT_EQ(Of(http, R"(route="/v1/completions",status="200")"), "2");
  EXPECT_EQ(Of(http, R"(route="/v1/completions",status="429")"), "1");
}

TEST_F(MetricsTest, TimesFallIntoTheirBuckets) {
  EXPECT_EQ(Histogram("skein_request_queue_time_seconds", RequestLatencyBuckets()),
            "1 0.04 1<=0.1");
  EXPECT_EQ(Histogram("skein_time_to_first_token_seconds", FirstTokenBuckets()), "1 0.09 1<=0.1");
  EXPECT_EQ(Histogram("skein_inter_token_latency_seconds", PerTokenBuckets()), "1 0.004 1<=0.005");
  EXPECT_EQ(Histogram("skein_request_time_per_output_token_seconds", PerTokenBuckets()),
            "1 0.002 1<=0.002");
  // Not of requests that failed or were left.
  EXPECT_EQ(Histogram("skein_e2e_request_latency_seconds", RequestLatencyBuckets()),
            "1 0.094 1<=0.1");
}

TEST_F(MetricsTest, LengthsOfWholeAnswersAndOfPrompts) {
  EXPECT_EQ(Histogram("skein_request_prompt_tokens", TokenBuckets(100)), "3 73 1<=1 2<=20 3<=100");
  EXPECT_EQ(Histogram("skein_request_generation_tokens", TokenBuckets(100)), "2 4 1<=1 2<=5");
}

TEST(BucketsTest, AreVllmsAndOnesOfOurs) {
  EXPECT_THAT(TokenBuckets(100), ElementsAre(1, 2, 5, 10, 20, 50, 100));
  EXPECT_THAT(TokenBuckets(99), ElementsAre(1, 2, 5, 10, 20, 50));
  EXPECT_THAT(FirstTokenBuckets(),
              ElementsAre(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5,
                          5, 7.5, 10, 20, 40, 80, 160, 640, 2560));
  EXPECT_THAT(PerTokenBuckets(),
              IsSupersetOf({0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
                            5.0, 7.5, 10.0, 20.0, 40.0, 80.0}));
  EXPECT_THAT(RequestLatencyBuckets(),
              IsSupersetOf({0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                            30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0}));
  for (const std::vector<double>& bounds :
       {FirstTokenBuckets(), PerTokenBuckets(), RequestLatencyBuckets(), TokenBuckets(131072)}) {
    EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end()));
  }
}

TEST_F(MetricsTest, TheServiceAsItIsNow) {
  EXPECT_EQ(scrape_[R"(skein_num_requests_running{model_name="bard"})"], "6");
  EXPECT_EQ(scrape_[R"(skein_num_requests_waiting{model_name="bard"})"], "4");
  EXPECT_EQ(scrape_[R"(skein_migrations_total{model_name="bard"})"], "9");
  EXPECT_EQ(Of("skein_info", R"(model_name="bard",version="1.2.3")"), "1");
}

TEST_F(MetricsTest, JobsAndRanksByState) {
  EXPECT_EQ(Of("skein_jobs", R"(model_name="chat",state="waiting for ranks")"), "1");
  EXPECT_EQ(Of("skein_jobs", R"(model_name="bard",state="loading")"), "0");
  EXPECT_EQ(Of("skein_jobs", R"(model_name="bard",state="serving")"), "1");
  EXPECT_EQ(Of("skein_ranks", R"(job_id="5f0c",state="ready")"), "2");
  EXPECT_EQ(Of("skein_ranks", R"(job_id="5f0c",state="idle")"), "1");
  EXPECT_EQ(Of("skein_ranks", R"(job_id="5f0c",state="loading")"), "0");
  EXPECT_EQ(Of("skein_ranks", R"(job_id="77aa",state="attached")"), "1");
  const auto time = [&](const std::string& activity) {
    return Of(
        "skein_rank_time_seconds_total",
        absl::StrCat("activity=\"", activity, "\",host=\"node0\",job_id=\"5f0c\",rank=\"0\""));
  };
  EXPECT_EQ(time("compute"), "6.5");
  EXPECT_EQ(time("transfer"), "0.25");
  EXPECT_EQ(time("bubble"), "1.25");
  EXPECT_EQ(time("wait"), "2");
  EXPECT_EQ(Of("skein_rank_heartbeat_age_seconds", R"(host="node1",job_id="5f0c",rank="1")"),
            "0.5");
}

TEST_F(MetricsTest, EachReplicasLoad) {
  const auto first = [&](const std::string& name) {
    return Of("skein_" + name, R"(job_id="5f0c",model_name="bard",replica="0")");
  };
  EXPECT_EQ(first("replica_sequences_running"), "3");
  EXPECT_EQ(first("replica_sequences_waiting"), "2");
  EXPECT_EQ(first("kv_pages"), "100");
  EXPECT_EQ(first("kv_pages_used"), "25");
  EXPECT_EQ(first("kv_pages_shared"), "5");
  EXPECT_EQ(first("kv_pages_cached"), "35");
  EXPECT_EQ(first("kv_pages_free"), "60");
  EXPECT_EQ(first("kv_cache_usage_perc"), "0.25");
  EXPECT_EQ(first("swap_pages"), "50");
  EXPECT_EQ(first("swap_pages_free"), "49");
  EXPECT_EQ(first("prefix_cache_queries_total"), "4096");
  EXPECT_EQ(first("prefix_cache_hits_total"), "1024");
  EXPECT_EQ(first("replica_generation_tokens_total"), "2800");
  EXPECT_EQ(first("replica_steps_total"), "1000");
  EXPECT_EQ(first("decode_steps_total"), "900");
  EXPECT_EQ(first("decode_rows_total"), "2700");
  EXPECT_EQ(first("decode_seconds_total"), "1.8");
  EXPECT_EQ(first("prompt_steps_total"), "100");
  EXPECT_EQ(first("prompt_rows_total"), "3072");
  EXPECT_EQ(first("prompt_seconds_total"), "1.25");
  EXPECT_EQ(first("scheduling_cpu_seconds_total"), "0.09");
  const std::string preemptions = "skein_num_preemptions_total";
  EXPECT_EQ(Of(preemptions, R"(job_id="5f0c",mode="swap",model_name="bard",replica="0")"), "7");
  EXPECT_EQ(Of(preemptions, R"(job_id="5f0c",mode="recompute",model_name="bard",replica="0")"),
            "8");
  EXPECT_EQ(Of("skein_kv_pages_free", R"(job_id="5f0c",model_name="bard",replica="1")"), "100");
}

TEST_F(MetricsTest, PredictionsStandBesideMeasurementsOnceThereAreSome) {
  const auto of = [&](const char* kind, const char* time, int replica) {
    return Of(absl::StrCat("skein_", kind, "_step_", time, "_seconds"),
              absl::StrCat(R"(job_id="5f0c",model_name="bard",replica=")", replica, "\""));
  };
  EXPECT_EQ(of("decode", "measured", 0), "0.0025");
  EXPECT_EQ(of("decode", "predicted", 0), "0.002");
  EXPECT_EQ(of("prompt", "measured", 0), "0.015");
  EXPECT_EQ(of("prompt", "predicted", 0), "0.0125");
  for (const char* const kind : {"decode", "prompt"}) {
    EXPECT_EQ(of(kind, "measured", 1), "") << kind;
    EXPECT_EQ(of(kind, "predicted", 1), "") << kind;
  }
}

TEST_F(MetricsTest, EachModelCountsForItself) {
  const auto of_chat = [&](const char* name) {
    return Of(absl::StrCat("skein_", name), R"(model_name="chat")");
  };
  EXPECT_EQ(of_chat("requests_admitted_total"), "1");
  EXPECT_EQ(of_chat("prompt_tokens_total"), "7");
  EXPECT_EQ(of_chat("request_prompt_tokens_count"), "1");
  EXPECT_EQ(of_chat("num_requests_waiting"), "1");
  EXPECT_EQ(of_chat("num_requests_running"), "0");
  EXPECT_EQ(Of("skein_info", R"(model_name="chat",version="1.2.3")"), "1");
  EXPECT_EQ(Of("skein_jobs", R"(model_name="chat",state="serving")"), "0");
  EXPECT_EQ(Of("skein_requests_refused_total", R"(code="NOT_FOUND",model_name="")"), "1");
  EXPECT_EQ(Of("skein_requests_refused_total", R"(code="NOT_FOUND",model_name="bard")"), "");
  // The same again, for a model that comes back.
  metrics_->observer("chat", 10).OnAdmitted(1);
  EXPECT_EQ(ReadScrape(metrics_->Text())[R"(skein_requests_admitted_total{model_name="chat"})"],
            "2");
}

TEST_F(MetricsTest, JobsThatAreOverAreGone) {
  for (const auto& [series, value] : scrape_.values) {
    EXPECT_FALSE(absl::StrContains(series, "dead")) << series;
    EXPECT_NE(value, "malformed") << series;
  }
}

// Prometheus refuses a scrape in which a series comes twice.
TEST(MetricsOfTwoJobsTest, OfOneIdTheFirstHasSeries) {
  MetricsSnapshot snapshot = ScriptedSnapshot();
  JobStatus claims = snapshot.jobs.front();
  claims.state = "loading";
  claims.replicas[0].load.total_pages = 1;
  snapshot.jobs.push_back(claims);
  const Metrics metrics({.version = "1", .snapshot = [&] { return snapshot; }});
  const std::string text = metrics.Text();
  std::set<absl::string_view> series;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    EXPECT_TRUE(series.insert(line.substr(0, line.rfind(' '))).second || line[0] == '#') << line;
  }
  const Scrape scrape = ReadScrape(text);
  EXPECT_EQ(scrape[R"(skein_kv_pages{job_id="5f0c",model_name="bard",replica="0"})"], "100");
  EXPECT_EQ(scrape[R"(skein_jobs{model_name="bard",state="loading"})"], "1");
}

TEST_F(MetricsTest, NothingIsLostBetweenThreadsAndScrapes) {
  constexpr int kEach = 20'000;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < kEach; ++k)
        metrics_->observer("bard", 100).OnTokens(1, absl::Milliseconds(1));
    });
  }
  for (int i = 0; i < 20; ++i) metrics_->Text();
  for (std::thread& thread : threads) thread.join();
  const Scrape after = ReadScrape(metrics_->Text());
  EXPECT_EQ(after[R"(skein_generation_tokens_total{model_name="bard"})"],
            absl::StrCat(4 + 3 * kEach));
  EXPECT_EQ(after[R"(skein_inter_token_latency_seconds_count{model_name="bard"})"],
            absl::StrCat(1 + 3 * kEach));
}

}  // namespace
}  // namespace skein::coordinator

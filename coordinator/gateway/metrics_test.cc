// A scrape of a coordinator that serves: what requests over HTTP and a job's reports leave there.
#include <string>
#include <utility>

#include "coordinator/gateway/gateway_fixture.h"
#include "coordinator/metrics/scrape_for_tests.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;

class MetricsOverHttpTest : public GatewayTest {
 protected:
  Scrape ScrapeNow() {
    client_.Get("/metrics");
    Response response = client_.Read();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    return ReadScrape(response.body);
  }
  // One that reports a load.
  void StartLoadedJob() {
    const serving::ReplicaLoad load = {.running = 1,
                                       .total_pages = 40,
                                       .free_pages = 30,
                                       .used_pages = 10,
                                       .prompt_tokens = 64,
                                       .cached_tokens = 16,
                                       .preemptions_recomputed = 2};
    job_ = std::make_unique<FakeJob>(FakeJobOptions{
        .coordinator = coordinator_.address(), .replica_load = load, .script = Echo});
    ASSERT_TRUE(coordinator_.WaitUntilServing());
  }
};

TEST_F(MetricsOverHttpTest, RequestsAnswersAndRefusals) {
  PostJson("/v1/completions", {{"prompt", "a"}}, 503);
  StartLoadedJob();
  PostJson("/v1/completions", {{"prompt", "abc"}, {"n", 2}});
  PostJson("/v1/completions", {{"prompt", "abcd"}, {"max_tokens", 2}});
  PostJson("/v1/completions", {{"prompt", 7}}, 400);
  PostStream("/v1/chat/completions",
             {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"stream", true}});
  client_.Get("/secrets");
  EXPECT_EQ(client_.Read().status, 404);
  client_.Get("/v1/models/fake");
  EXPECT_EQ(client_.Read().status, 200);
  client_.Send("nonsense\r\n\r\n");
  EXPECT_EQ(client_.Read().status, 400);
  HttpTestClient another(coordinator_.http_address());
  another.Get("/metrics");
  const Scrape scrape = ReadScrape(another.Read().body);
  const auto http = [&](const std::string& route, int status) {
    return scrape[absl::StrCat("skein_http_requests_total{route=\"", route, "\",status=\"", status,
                               "\"}")];
  };
  EXPECT_EQ(http("/v1/completions", 200), "2");
  EXPECT_EQ(http("/v1/completions", 503), "1");
  EXPECT_EQ(http("/v1/completions", 400), "1");
  EXPECT_EQ(http("/v1/chat/completions", 200), "1");
  EXPECT_EQ(http("/v1/models/", 200), "1");
  EXPECT_EQ(http("other", 404), "1");
  EXPECT_EQ(http("refused", 400), "1");
  EXPECT_EQ(scrape["skein_requests_admitted_total{model_name=\"fake\"}"], "3");
  EXPECT_EQ(scrape["skein_requests_refused_total{code=\"UNAVAILABLE\",model_name=\"fake\"}"], "1");
  EXPECT_EQ(scrape["skein_answers_finished_total{finished_reason=\"eos\",model_name=\"fake\"}"],
            "3");
  EXPECT_EQ(scrape["skein_answers_finished_total{finished_reason=\"length\",model_name=\"fake\"}"],
            "1");
  // "re: abc 0" and "re: abc 1" and their ends, two, and "re: " with the chat's text.
  EXPECT_EQ(scrape["skein_request_generation_tokens_count{model_name=\"fake\"}"], "4");
  EXPECT_EQ(scrape["skein_time_to_first_token_seconds_count{model_name=\"fake\"}"], "3");
  EXPECT_EQ(scrape["skein_request_queue_time_seconds_count{model_name=\"fake\"}"], "3");
  EXPECT_EQ(scrape["skein_e2e_request_latency_seconds_count{model_name=\"fake\"}"], "3");
  EXPECT_EQ(scrape["skein_num_requests_running{model_name=\"fake\"}"], "0");
}

TEST_F(MetricsOverHttpTest, WhatTheJobReports) {
  const Scrape before = ScrapeNow();
  EXPECT_EQ(before["skein_jobs{model_name=\"fake\",state=\"serving\"}"], "0");
  StartLoadedJob();
  PostJson("/v1/completions", {{"prompt", "abc"}});
  const Scrape scrape = ScrapeNow();
  EXPECT_EQ(scrape["skein_jobs{model_name=\"fake\",state=\"serving\"}"], "1");
  EXPECT_EQ(scrape["skein_ranks{job_id=\"job\",state=\"ready\"}"], "1");
  const std::string of = "{job_id=\"job\",model_name=\"fake\",replica=\"0\"}";
  EXPECT_EQ(scrape["skein_kv_pages" + of], "40");
  EXPECT_EQ(scrape["skein_kv_cache_usage_perc" + of], "0.25");
  EXPECT_EQ(scrape["skein_prefix_cache_queries_total" + of], "64");
  EXPECT_EQ(scrape["skein_prefix_cache_hits_total" + of], "16");
  EXPECT_EQ(scrape["skein_replica_generation_tokens_total" + of], "8");  // "re: abc" and its end
  EXPECT_EQ(scrape["skein_info{model_name=\"fake\",version=\"test\"}"], "1");
}

TEST_F(MetricsOverHttpTest, AClientThatGoesIsAnAbortAndNoFailure) {
  StartJob(nullptr);
  HttpTestClient client(coordinator_.http_address());
  client.Post("/v1/completions", R"({"prompt": "a"})");
  const std::optional<serving::Request> request = job_->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(ScrapeNow()["skein_num_requests_running{model_name=\"fake\"}"], "1");
  client.Close();
  ASSERT_TRUE(job_->WaitForCancel(request->id));
  EXPECT_TRUE(TestCoordinator::WaitFor([&] {
    return ScrapeNow()
               ["skein_answers_finished_total{finished_reason=\"abort\",model_name=\"fake\"}"] ==
           "1";
  }));
  EXPECT_EQ(ScrapeNow()["skein_num_requests_running{model_name=\"fake\"}"], "0");
  EXPECT_EQ(ScrapeNow()["skein_requests_failed_total{code=\"UNAVAILABLE\",model_name=\"fake\"}"],
            "0");
}

TEST(MetricsAddressTest, MetricsOfTheirOwnAddressAreThereAlone) {
  Daemon::Options options = TestOptions();
  options.metrics = "127.0.0.1:0";
  TestCoordinator coordinator(options);
  HttpTestClient gateway(coordinator.http_address());
  gateway.Get("/metrics");
  const Response absent = gateway.Read();
  EXPECT_EQ(absent.status, 404);
  EXPECT_THAT(absent.body, HasSubstr("there is no /metrics"));
  HttpTestClient client(coordinator.metrics_address());
  client.Get("/v1/models");
  EXPECT_EQ(client.Read().status, 404);
  client.Get("/metrics");
  const Response response = client.Read();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(
      ReadScrape(response.body)["skein_http_requests_total{route=\"/metrics\",status=\"404\"}"],
      "1");
}

// Without the gateway, too.
TEST(MetricsAddressTest, MetricsNeedNoGateway) {
  Daemon::Options options = TestOptions();
  options.http.reset();
  options.metrics = "127.0.0.1:0";
  TestCoordinator coordinator(options);
  HttpTestClient client(coordinator.metrics_address());
  client.Get("/metrics");
  EXPECT_EQ(client.Read().status, 200);
}

}  // namespace
}  // namespace skein::coordinator

#include "coordinator/metrics/metrics_server.h"

#include <string>

#include "absl/status/status.h"
#include "base/test_util.h"
#include "coordinator/gateway/http_client_for_tests.h"
#include "coordinator/metrics/load_for_tests.h"
#include "coordinator/metrics/scrape_for_tests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;

class MetricsServerTest : public ::testing::Test {
 protected:
  void SetUp() override { SKEIN_ASSERT_OK(server_.Start("127.0.0.1:0")); }
  HttpTestClient::Response Ask(const std::string& request) {
    HttpTestClient client(server_.address());
    client.Send(request + " HTTP/1.1\r\n\r\n");
    return client.Read();
  }

  const std::unique_ptr<Metrics> metrics_ = ScriptedMetrics();
  MetricsServer server_{metrics_.get()};
};

TEST_F(MetricsServerTest, AScrapeIsPrometheusText) {
  HttpTestClient::Response response = Ask("GET /metrics");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(ReadScrape(response.body)[R"(skein_prompt_tokens_total{model_name="bard"})"], "73");
  metrics_->observer("bard", 100).OnAdmitted(7);
  EXPECT_EQ(ReadScrape(Ask("GET /metrics").body)[R"(skein_prompt_tokens_total{model_name="bard"})"],
            "80");
}

TEST_F(MetricsServerTest, NothingElseIsThere) {
  EXPECT_EQ(Ask("GET /health").body, R"({"status":"ok"})");
  EXPECT_EQ(Ask("GET /v1/models").status, 404);
  EXPECT_THAT(Ask("POST /v1/completions").body, HasSubstr("there is no /v1/completions here"));
  HttpTestClient::Response response = Ask("DELETE /metrics");
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(response.headers["allow"], "GET");
  EXPECT_EQ(Ask("nonsense").status, 400);
}

TEST_F(MetricsServerTest, AnAddressThatIsTakenIsToldAtTheStart) {
  MetricsServer second(metrics_.get());
  EXPECT_EQ(second.Start(server_.address()).code(), absl::StatusCode::kUnavailable);
  second.Shutdown(absl::ZeroDuration());
}

}  // namespace
}  // namespace skein::coordinator

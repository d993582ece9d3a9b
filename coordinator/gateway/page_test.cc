// The status page and what it asks for, on the wire.
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <memory>
#include <regex>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/test_util.h"
#include "coordinator/gateway/gateway_fixture.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// As a policy names it: 'sha256-...'.
std::string HashSource(const std::string& text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  unsigned char base64[64] = {};
  EVP_EncodeBlock(base64, digest, sizeof(digest));
  return absl::StrCat("'sha256-", reinterpret_cast<const char*>(base64), "'");
}

// What stands between the only two such tags.
std::string Between(const std::string& page, const std::string& open, const std::string& close) {
  const size_t begin = page.find(open) + open.size();
  EXPECT_EQ(page.find(open, begin), std::string::npos) << open;
  const size_t end = page.find(close, begin);
  EXPECT_EQ(page.find(close, end + 1), std::string::npos) << close;
  return page.substr(begin, end - begin);
}

class PageTest : public GatewayTest {
 protected:
  Response Get(const std::string& path) {
    client_.Get(path);
    return client_.Read();
  }
  json Status() {
    Response response = Get("/v1/status");
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.headers["content-type"], "application/json");
    EXPECT_EQ(response.headers["cache-control"], "no-store");
    return json::parse(response.body);
  }
};

TEST_F(PageTest, ItsPolicyAllowsItsOwnScriptAndStyleAndNothingElse) {
  Response page = Get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers["content-type"], "text/html; charset=utf-8");
  EXPECT_EQ(page.headers["x-content-type-options"], "nosniff");
  EXPECT_EQ(page.headers["referrer-policy"], "no-referrer");
  EXPECT_THAT(page.body, StartsWith("<!DOCTYPE html>"));
  const std::string script = Between(page.body, "<script>", "</script>");
  const std::string style = Between(page.body, "<style>", "</style>");
  EXPECT_THAT(script, HasSubstr("use strict"));
  EXPECT_THAT(style, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_EQ(page.headers["content-security-policy"],
            absl::StrCat("default-src 'none'; script-src ", HashSource(script), "; style-src ",
                         HashSource(style),
                         "; img-src data: blob:; connect-src 'self'; base-uri 'none'; "
                         "form-action 'none'; frame-ancestors 'none'"));
}

TEST_F(PageTest, ItRefersToNothingOutsideAndMakesNoMarkupOfTexts) {
  const std::string page = Get("/").body;
  EXPECT_GT(page.size(), 10'000u);
  const auto found = [&](const char* expression) {
    std::smatch match;
    return std::regex_search(page, match, std::regex(expression)) ? match.str() : "";
  };
  std::string links = page;
  const std::string svg = "http://www.w3.org/2000/svg";  // a name, which nobody fetches
  links.erase(links.find(svg), svg.size());
  EXPECT_THAT(links, AllOf(Not(HasSubstr("http:")), Not(HasSubstr("https:"))));
  EXPECT_EQ(found("[\"'`(=]\\s*//\\w"), "");  // of the same scheme
  EXPECT_EQ(found("(src|href|action|data|poster)=\"(?!#|data:)[^\"]*\""), "");
  EXPECT_EQ(found("url\\(|@import|@font-face|import\\s*\\("), "");
  EXPECT_EQ(found("innerHTML|outerHTML|insertAdjacentHTML|document\\.write|srcdoc|DOMParser"), "");
  EXPECT_EQ(found("\\beval\\(|new Function|setTimeout\\(\\s*[\"'`]"), "");
  EXPECT_EQ(found("<[^>]*\\s(on[a-z]+|style)="), "");  // the policy would stop these
  EXPECT_EQ(found("@[A-Z]+@"), "");                    // places that were filled
}

TEST_F(PageTest, ItsRouteTakesGetAlone) {
  client_.Send("HEAD / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client_.ReadHead().status, 200);
  HttpTestClient another(coordinator_.http_address());
  another.Post("/", "{}");
  Response response = another.Read();
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(response.headers["allow"], "GET");
}

TEST_F(PageTest, HostIsCheckedAsOnOtherRoutes) {
  for (const char* const path : {"/", "/v1/status", "/v1/picture?job=job"}) {
    HttpTestClient client(coordinator_.http_address());
    client.Send(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: evil.example\r\n\r\n"));
    EXPECT_EQ(client.Read().status, 403) << path;
  }
}

TEST_F(PageTest, TheStatusIsThatOfSkeinStatus) {
  json status = Status();
  EXPECT_EQ(status["model_name"], "fake");
  EXPECT_EQ(status["version"], "test");
  EXPECT_EQ(status["serving"], false);
  EXPECT_EQ(status["draining"], false);
  EXPECT_EQ(status["queued_requests"], 0);
  EXPECT_TRUE(status["jobs"].empty());
  EXPECT_EQ(status["latencies"]["first_token"]["count"], "0");
  EXPECT_EQ(status["latencies"]["window_seconds"], 60);

  const serving::ReplicaLoad load = {
      .running = 1, .total_pages = 40, .free_pages = 30, .used_pages = 10};
  job_ = std::make_unique<FakeJob>(
      FakeJobOptions{.coordinator = coordinator_.address(), .replica_load = load, .script = Echo});
  ASSERT_TRUE(coordinator_.WaitUntilServing());
  PostJson("/v1/completions", {{"prompt", "abc"}});
  status = Status();
  EXPECT_EQ(status["serving"], true);
  ASSERT_EQ(status["jobs"].size(), 1u);
  const json job = status["jobs"][0];
  EXPECT_EQ(job["job_id"], "job");
  EXPECT_EQ(job["state"], "serving");
  EXPECT_EQ(job["size"], 1);
  EXPECT_EQ(job["plan"]["layout"]["tp_size"], 1);
  EXPECT_EQ(job["plan"]["ranks"][0]["pp_rank"], 0);
  EXPECT_EQ(job["ranks"][0]["host"], "host0");
  EXPECT_EQ(job["ranks"][0]["state"], "ready");
  EXPECT_FALSE(job.contains("over_seconds"));
  EXPECT_EQ(job["replicas"][0]["load"]["used_pages"], "10");
  EXPECT_EQ(job["replicas"][0]["load"]["total_pages"], "40");
  EXPECT_EQ(job["replicas"][0]["tokens_total"], "8");  // "re: abc" and its end
  EXPECT_EQ(status["latencies"]["first_token"]["count"], "1");
  EXPECT_GT(status["latencies"]["first_token"]["p50_seconds"], 0);
  EXPECT_LT(status["latencies"]["first_token"]["p99_seconds"], 20);
}

TEST_F(PageTest, TokensThatComeApartCountAsSuch) {
  StartJob(nullptr);
  client_.Post("/v1/completions", R"({"prompt": "a", "stream": true})");
  const std::optional<serving::Request> request = job_->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  job_->Send(TextOutput(request->id, "one", serving::Finish::kNotFinished));
  EXPECT_EQ(client_.ReadHead().status, 200);
  EXPECT_THAT(client_.ReadChunk(), HasSubstr("one"));
  absl::SleepFor(absl::Milliseconds(120));
  job_->Send(TextOutput(request->id, "two"));
  while (!client_.ReadChunk().empty()) {
  }
  const json latencies = Status()["latencies"]["inter_token"];
  EXPECT_EQ(latencies["count"], "1");
  EXPECT_GT(latencies["p50_seconds"], 0.1);
  EXPECT_LT(latencies["p50_seconds"], 10);
}

TEST_F(PageTest, JobsThatAreOverSayWhy) {
  StartJob(Echo);
  job_->Kill(0);
  ASSERT_TRUE(coordinator_.WaitUntilServing(false));
  const json job = Status()["jobs"][0];
  EXPECT_EQ(job["state"], "lost");
  EXPECT_GE(job["over_seconds"], 0);
  EXPECT_THAT(job["detail"].get<std::string>(), HasSubstr("rank 0 on host0"));
  EXPECT_EQ(Get("/v1/picture?job=job").status, 404);
}

TEST_F(PageTest, APictureOfAJobRunsNothing) {
  StartJob(Echo);
  Response picture = Get("/v1/picture?job=job");
  EXPECT_EQ(picture.status, 200);
  EXPECT_EQ(picture.headers["content-type"], "image/svg+xml");
  EXPECT_EQ(picture.headers["content-security-policy"],
            "default-src 'none'; style-src 'unsafe-inline'; sandbox");
  EXPECT_THAT(picture.body, AllOf(StartsWith("<svg "), HasSubstr("host0"), HasSubstr("rank 0"),
                                  Not(HasSubstr("<script"))));
  picture = Get("/v1/picture?job=nobody");
  EXPECT_EQ(picture.status, 404);
  EXPECT_THAT(picture.body, AllOf(HasSubstr("no job 'nobody'"), HasSubstr("job_not_found")));
  EXPECT_EQ(Get("/v1/picture").status, 400);
  EXPECT_EQ(Get("/v1/picture?jobs=job").status, 400);
}

}  // namespace
}  // namespace skein::coordinator

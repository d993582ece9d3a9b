// Hosts, keys and limits, on the wire and off it.
#include "coordinator/gateway/gatekeeper.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/test_util.h"
#include "coordinator/access/access.h"
#include "coordinator/gateway/gateway_fixture.h"
#include "serving/keys/key_file.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The status with which it is refused; 0: it is not.
int Refused(const Gatekeeper& gatekeeper, const HttpHeaders& headers,
            const std::string& path = "/v1/models") {
  const HttpRequest request = {.method = "GET", .path = path, .headers = headers};
  const Gatekeeper::Verdict verdict = gatekeeper.Judge(request, /*models=*/{});
  return verdict.refusal.has_value() ? verdict.refusal->status : 0;
}

TEST(GatekeeperTest, OnLoopbackHostsAreThoseOfThisMachine) {
  const Gatekeeper gatekeeper({"127.0.0.2", 80}, {.allowed_hosts = {"Skein.Example"}});
  for (const char* const host :
       {"localhost", "LOCALHOST:1234", "127.0.0.1", "127.0.0.1:8000", "127.0.0.2:80", "[::1]",
        "[::1]:8000", "skein.example", "skein.EXAMPLE:443"}) {
    EXPECT_EQ(Refused(gatekeeper, {{"Host", host}}), 0) << host;
  }
  for (const char* const host :
       {"evil.example", "localhost.evil.example", "evil.example:8000", "127.0.0.3", "[::2]:80",
        "::1", "127.0.0.1.evil.example", "skein.example.evil", "[::1].evil", ":80", "localhost."}) {
    EXPECT_EQ(Refused(gatekeeper, {{"host", host}}), 403) << host;
    EXPECT_EQ(Refused(gatekeeper, {{"host", host}}, "/health"), 403) << host;
  }
  EXPECT_EQ(Refused(gatekeeper, {}), 0);  // of no browser
}

TEST(GatekeeperTest, ElsewhereHostsAreThoseThatAreNamed) {
  const Gatekeeper any({"0.0.0.0", 80}, {});
  EXPECT_EQ(Refused(any, {{"Host", "whoever.example"}}), 0);
  const Gatekeeper named({"10.0.0.1", 80}, {.allowed_hosts = {"skein.example"}});
  EXPECT_EQ(Refused(named, {{"Host", "skein.example"}}), 0);
  EXPECT_EQ(Refused(named, {{"Host", "10.0.0.1:80"}}), 0);
  EXPECT_EQ(Refused(named, {{"Host", "whoever.example"}}), 403);
  EXPECT_EQ(Refused(named, {{"Host", "localhost"}}), 403);
}

// A coordinator that asks for keys, with a job behind it. Time stands still.
class AccessTest : public GatewayTest {
 protected:
  void SetUp() override {
    for (const char* const name : {"alice", "bob", "carol", "dave", "erin", "other"}) {
      keys_ +=
          serving::KeyLine({.name = name, .hash = serving::HashOfKey(absl::StrCat("sk-", name))});
      if (std::string(name) == "alice") keys_ += " requests-per-minute=2";
      if (std::string(name) == "bob") keys_ += " tokens-per-minute=20";
      if (std::string(name) == "carol") keys_ += " streams=1";
      if (std::string(name) == "dave") keys_ += " disabled=yes";
      if (std::string(name) == "other") keys_ += " models=hamlet,macbeth";
      if (std::string(name) == "erin") keys_ += " models=hamlet,fake";
      keys_ += "\n";
    }
    SKEIN_ASSERT_OK(WriteFile(Path("keys"), keys_));
    std::filesystem::remove(Path("usage.db"));
    Start();
  }
  void Start() {
    coordinator_.reset();
    access_.reset();
    access_ = Access::Open({Path("keys"), Path("usage.db")}, &clock_).value();
    Daemon::Options options = Options();
    options.gatekeeper.access = access_.get();
    coordinator_ = std::make_unique<TestCoordinator>(options, Model());
  }
  void Serve(std::function<std::vector<serving::AnswerOutput>(const serving::Request&)> script) {
    job_ = std::make_unique<FakeJob>(
        FakeJobOptions{.coordinator = coordinator_->address(), .script = std::move(script)});
    ASSERT_TRUE(coordinator_->WaitUntilServing());
  }
  void TearDown() override { job_.reset(); }

  static std::string Path(const std::string& name) {
    return absl::StrCat(::testing::TempDir(), "/", name);
  }
  static std::string Request(const std::string& line, const std::string& header,
                             const std::string& body) {
    return absl::StrCat(line, " HTTP/1.1\r\n", header, header.empty() ? "" : "\r\n",
                        "Content-Type: application/json\r\nContent-Length: ", body.size(),
                        "\r\n\r\n", body);
  }
  Response Send(const std::string& line, const std::string& header, const std::string& body = "") {
    HttpTestClient client(coordinator_->http_address());
    client.Send(Request(line, header, body));
    return client.Read();
  }
  Response Complete(const std::string& name, const json& more = {{"prompt", "ab"}}) {
    return Send("POST /v1/completions", absl::StrCat("Authorization: Bearer sk-", name),
                more.dump());
  }
  static json ErrorOf(const Response& response) { return json::parse(response.body)["error"]; }

  std::string keys_;
  SimulatedClock clock_{absl::FromUnixSeconds(1000)};
  std::unique_ptr<Access> access_;
  std::unique_ptr<TestCoordinator> coordinator_;
};

TEST_F(AccessTest, KeysAreAskedForOnEveryRouteButTheOpenOnes) {
  for (const char* const line :
       {"GET /v1/models", "GET /v1/models/fake", "POST /v1/completions", "POST /v1/messages",
        "POST /tokenize", "GET /nothing", "GET /v1/status", "GET /v1/picture?job=job", "GET //",
        "GET /health/", "GET //health"}) {
    for (const char* const header :
         {"", "Authorization: Bearer sk-nobody", "x-api-key: sk-nobody", "Authorization: Bearer ",
          "Authorization: sk-erin", "Authorization: Basic sk-erin"}) {
      Response response = Send(line, header);
      EXPECT_EQ(response.status, 401) << line << header;
      EXPECT_EQ(response.headers["www-authenticate"], "Bearer");
      EXPECT_EQ(json::parse(response.body)["type"], "error");
      EXPECT_EQ(ErrorOf(response)["type"], "authentication_error");
      EXPECT_EQ(ErrorOf(response)["code"], "invalid_api_key");
      EXPECT_THAT(response.body, Not(HasSubstr("nobody")));
    }
  }
  EXPECT_EQ(Send("GET /health", "").status, 200);
  EXPECT_EQ(Send("GET /ready", "").status, 503);
  EXPECT_THAT(Send("GET /", "").body, HasSubstr("asks for an API key"));
  HttpTestClient client(coordinator_->http_address());
  client.Send("HEAD /health HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.ReadHead().status, 200);
}

TEST_F(AccessTest, KeysAreTakenInBothWays) {
  Serve(Echo);
  for (const char* const header :
       {"Authorization: Bearer sk-erin", "authorization: bearer  sk-erin ", "x-api-key: sk-erin",
        "X-API-Key: sk-erin"}) {
    EXPECT_EQ(Send("GET /v1/models", header).status, 200) << header;
  }
  EXPECT_EQ(Complete("erin").status, 200);
}

TEST_F(AccessTest, KeysThatMayNotAreForbidden) {
  const Response disabled = Complete("dave");
  EXPECT_EQ(disabled.status, 403);
  EXPECT_EQ(ErrorOf(disabled)["code"], "key_disabled");
  EXPECT_EQ(ErrorOf(disabled)["type"], "permission_error");
  const Response other = Complete("other");
  EXPECT_EQ(other.status, 403);
  EXPECT_EQ(ErrorOf(other)["code"], "model_not_allowed");
  EXPECT_THAT(other.body, Not(HasSubstr("fake")));
}

TEST_F(AccessTest, AKeySeesAndUsesItsModelsAlone) {
  ServedModel second = Model();
  second.name = "danish";
  second.aliases = {"hamlet"};
  coordinator_->AddModel(std::move(second));
  Serve(Echo);  // of the first
  const auto seen = [&](const char* key) {
    std::vector<std::string> ids;
    const json list = json::parse(Send("GET /v1/models", key).body)["data"];
    for (const json& model : list) ids.push_back(model["id"]);
    return ids;
  };
  EXPECT_THAT(seen("x-api-key: sk-alice"), ElementsAre("fake", "danish"));
  EXPECT_THAT(seen("x-api-key: sk-erin"), ElementsAre("fake", "danish"));
  EXPECT_THAT(seen("x-api-key: sk-other"), ElementsAre("danish"));
  EXPECT_EQ(Send("GET /v1/models/fake", "x-api-key: sk-other").status, 403);
  EXPECT_EQ(Complete("erin", {{"prompt", "ab"}, {"model", "fake"}}).status, 200);
  const Response refused = Complete("other", {{"prompt", "ab"}, {"model", "fake"}});
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(ErrorOf(refused)["code"], "model_not_allowed");
  // Nothing tells it what else is served.
  const Response missing = Complete("other", {{"prompt", "ab"}, {"model", "norse"}});
  EXPECT_EQ(missing.status, 404);
  EXPECT_THAT(missing.body, AllOf(HasSubstr("danish"), Not(HasSubstr("fake"))));
  EXPECT_THAT(Complete("alice", {{"prompt", "ab"}, {"model", "norse"}}).body, HasSubstr("fake"));
  // It may, but nothing serves it yet.
  EXPECT_EQ(Complete("other", {{"prompt", "ab"}, {"model", "hamlet"}}).status, 503);
}

TEST_F(AccessTest, RequestsAMinuteAreLimitedBeforeTheBodyIsParsed) {
  Serve(Echo);
  EXPECT_EQ(Complete("alice").status, 200);
  clock_.Advance(absl::Seconds(20));
  const std::string header = "x-api-key: sk-alice";
  EXPECT_EQ(Send("POST /v1/completions", header, "no JSON").status, 400);  // counts, too
  Response refused = Send("POST /v1/completions", header, "no JSON");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers["retry-after"], "41");
  EXPECT_EQ(ErrorOf(refused)["type"], "rate_limit_error");
  EXPECT_EQ(ErrorOf(refused)["code"], "rate_limit_exceeded");
  EXPECT_EQ(ErrorOf(refused)["message"],
            "this key's limit is requests-per-minute=2, and this would be 3; try again in 41 s");
  EXPECT_EQ(Complete("erin").status, 200);
  clock_.Advance(absl::Seconds(41));
  EXPECT_EQ(Complete("alice").status, 200);
}

// It is asked for every second.
TEST_F(AccessTest, WhoLooksOnUsesNothingOfALimit) {
  Serve(Echo);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Send("GET /v1/status", "x-api-key: sk-alice").status, 200);
    EXPECT_EQ(Send("GET /v1/picture?job=job", "x-api-key: sk-alice").status, 200);
  }
  EXPECT_EQ(Complete("alice").status, 200);
  EXPECT_EQ(Complete("alice").status, 200);
  EXPECT_EQ(Complete("alice").status, 429);
  EXPECT_EQ(Send("GET /v1/status", "x-api-key: sk-alice").status, 200);
  EXPECT_EQ(Send("GET /v1/status", "x-api-key: sk-dave").status, 403);
}

// An answer is "re: " and the prompt: with it, "ab" takes 9 tokens, eos among them.
TEST_F(AccessTest, TokensOfPromptsAndAnswersAreCounted) {
  Serve(Echo);
  for (const bool stream : {false, true}) {
    const Response response = Complete("bob", {{"prompt", "ab"}, {"stream", stream}});
    EXPECT_EQ(response.status, 200);
    if (!stream) {
      EXPECT_EQ(json::parse(response.body)["usage"]["total_tokens"], 9);
    }
  }
  Response refused = Complete("bob", {{"prompt", "abc"}});  // 2 are left
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers["retry-after"], "61");
  EXPECT_THAT(refused.body, HasSubstr("tokens-per-minute=20, and this would be 21;"));
  EXPECT_EQ(Complete("bob").status, 200);  // whose answer goes over
  EXPECT_THAT(Complete("bob", {{"prompt", "a"}}).body, HasSubstr("and this would be 28;"));
  clock_.Advance(absl::Seconds(61));
  EXPECT_EQ(Complete("bob").status, 200);
}

TEST_F(AccessTest, APromptThatNeverFitsIsForbidden) {
  Serve(Echo);
  const Response refused = Complete("bob", {{"prompt", std::string(21, 'a')}});
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(ErrorOf(refused)["code"], "prompt_too_long_for_key");
  EXPECT_EQ(Complete("bob").status, 200);
}

TEST_F(AccessTest, StreamsAreLimitedUntilTheyEnd) {
  Serve(nullptr);
  for (const bool gone : {false, true}) {
    HttpTestClient client(coordinator_->http_address());
    client.Send(Request("POST /v1/completions", "x-api-key: sk-carol",
                        R"({"prompt": "a", "stream": true})"));
    const std::optional<serving::Request> request = job_->WaitForRequest();
    ASSERT_TRUE(request.has_value());
    Response refused = Complete("carol");
    EXPECT_EQ(refused.status, 429);
    EXPECT_EQ(refused.headers["retry-after"], "1");
    EXPECT_THAT(refused.body, HasSubstr("streams=1"));
    if (gone) {
      client.Close();
      EXPECT_TRUE(job_->WaitForCancel(request->id));
    } else {
      job_->Send(TextOutput(request->id, "one", serving::Finish::kEos));
      EXPECT_THAT(client.Read().body, HasSubstr("[DONE]"));
    }
    // What has been read to its end counts no more; of one that was closed nobody says when.
    Response next;
    for (int i = 0; i < (gone ? 200 : 1); ++i) {
      next = Send("GET /v1/models", "x-api-key: sk-carol");
      if (next.status == 200) break;
      absl::SleepFor(absl::Milliseconds(10));
    }
    EXPECT_EQ(next.status, 200) << gone;
  }
}

// Gives its parts one by one.
class Parts final : public HttpAnswer {
 public:
  explicit Parts(std::vector<Part> parts) : parts_(std::move(parts)) {}
  Part Next() override {
    Part part = std::move(parts_.front());
    parts_.erase(parts_.begin());
    return part;
  }

 private:
  std::vector<Part> parts_;
};

TEST_F(AccessTest, WhatWasMadeForAClientThatLeavesIsCounted) {
  const auto bob = access_->Find("sk-bob");
  std::unique_ptr<HttpAnswer> answer =
      Metered(std::make_unique<Parts>(std::vector<HttpAnswer::Part>{
                  {.prompt_tokens = 3}, {.answer_tokens = 4}, {.answer_tokens = 5}}),
              access_->Admit(bob).admission);
  answer->Next();
  answer->Next();
  answer.reset();
  EXPECT_EQ(access_->Admit(bob).admission->AddPrompt(9)->wanted, 21);
}

TEST_F(AccessTest, AStreamEndsBeforeItsLastPartIsWritten) {
  const auto carol = access_->Find("sk-carol");
  const std::unique_ptr<HttpAnswer> answer =
      Metered(std::make_unique<Parts>(std::vector<HttpAnswer::Part>{{}, {.last = true}}),
              access_->Admit(carol).admission);
  answer->Next();
  EXPECT_TRUE(access_->Admit(carol).excess.has_value());
  answer->Next();
  EXPECT_FALSE(access_->Admit(carol).excess.has_value());
}

TEST_F(AccessTest, ARestartDoesNotForget) {
  Serve(Echo);
  EXPECT_EQ(Complete("alice").status, 200);
  EXPECT_EQ(Complete("alice").status, 200);
  job_.reset();
  Start();
  EXPECT_EQ(Complete("alice").status, 429);
}

TEST_F(AccessTest, ReloadsCountFromTheNextRequestOn) {
  Serve(Echo);
  EXPECT_EQ(Complete("erin").status, 200);
  SKEIN_ASSERT_OK(WriteFile(Path("keys"), "# none\n"));
  SKEIN_EXPECT_OK(access_->Reload());
  EXPECT_EQ(Complete("erin").status, 401);
  SKEIN_ASSERT_OK(WriteFile(Path("keys"), keys_ + "broken"));
  EXPECT_FALSE(access_->Reload().ok());
  EXPECT_EQ(Complete("erin").status, 401);
  SKEIN_ASSERT_OK(WriteFile(Path("keys"), keys_));
  SKEIN_EXPECT_OK(access_->Reload());
  EXPECT_EQ(Complete("erin").status, 200);
}

TEST_F(AccessTest, StrangeHostsAreRefusedBeforeKeysAreLookedAt) {
  const Response refused = Send("GET /v1/models", "Host: evil.example\r\nx-api-key: sk-erin");
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(ErrorOf(refused)["code"], "host_not_allowed");
  EXPECT_EQ(Send("GET /v1/models", "Host: localhost\r\nx-api-key: sk-erin").status, 200);
}

}  // namespace
}  // namespace skein::coordinator

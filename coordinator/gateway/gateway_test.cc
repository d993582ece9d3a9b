// Routes, states, refusals and clients that leave, on the wire.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/gateway/gateway_fixture.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(GatewayTest, ModelsAreListed) {
  client_.Get("/v1/models");
  const json list = json::parse(client_.Read().body);
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 1u);
  EXPECT_EQ(list["data"][0]["id"], "fake");
  EXPECT_EQ(list["data"][0]["max_model_len"], 64);
  client_.Get("/v1/models/fake");
  EXPECT_EQ(json::parse(client_.Read().body), list["data"][0]);
  client_.Get("/v1/models/other");
  const Response other = client_.Read();
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(json::parse(other.body)["error"]["code"], "model_not_found");
}

TEST_F(GatewayTest, HealthIsTheProcessAndReadinessTheReplicas) {
  const auto status_of = [&](const std::string& path) {
    client_.Get(path);
    return client_.Read().status;
  };
  EXPECT_EQ(status_of("/health"), 200);
  EXPECT_EQ(status_of("/ready"), 503);
  StartJob(Echo);
  EXPECT_EQ(status_of("/ready"), 200);
  job_->Kill(0);
  ASSERT_TRUE(coordinator_.WaitUntilServing(false));
  EXPECT_EQ(status_of("/ready"), 503);
  EXPECT_EQ(status_of("/health"), 200);
}

TEST_F(GatewayTest, RoutesMethodsAndTypesAreNamed) {
  client_.Get("/v1/nothing");
  Response response = client_.Read();
  EXPECT_EQ(response.status, 404);
  EXPECT_THAT(response.body, HasSubstr("there is no /v1/nothing"));
  client_.Get("/v1/completions");
  response = client_.Read();
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(response.headers["allow"], "POST");
  client_.Send(
      "POST /v1/completions HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(client_.Read().status, 415);
  client_.Send("nonsense\r\n\r\n");
  response = client_.Read();
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(json::parse(response.body)["error"]["message"].get<std::string>(),
              HasSubstr("no HTTP/1.1 request"));
}

TEST_F(GatewayTest, WithoutAReplicaAndWithAFullQueueRequestsAreRefusedForNow) {
  EXPECT_EQ(PostJson("/v1/completions", {{"prompt", "a"}}, 503)["error"]["code"], "unavailable");
  StartJob(nullptr);
  // 8 run, 8 wait there and 8 in the queue.
  std::vector<std::unique_ptr<HttpTestClient>> waiting;
  Response refused;
  for (int i = 0; i < 60 && refused.status == 0; ++i) {
    waiting.push_back(std::make_unique<HttpTestClient>(coordinator_.http_address()));
    waiting.back()->Post("/v1/completions", R"({"prompt": "a"})");
    if (waiting.back()->ReadSome(absl::Milliseconds(50))) refused = waiting.back()->Read();
  }
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers["retry-after"], "1");
  EXPECT_EQ(json::parse(refused.body)["error"]["type"], "rate_limit_error");
}

TEST_F(GatewayTest, AClientThatGoesAwayCancels) {
  StartJob(nullptr);
  for (const bool stream : {false, true}) {
    HttpTestClient client(coordinator_.http_address());
    client.Post("/v1/completions", json({{"prompt", "a"}, {"stream", stream}}).dump());
    const std::optional<serving::Request> request = job_->WaitForRequest();
    ASSERT_TRUE(request.has_value());
    client.Close();
    EXPECT_TRUE(job_->WaitForCancel(request->id)) << stream;
  }
}

TEST_F(GatewayTest, FailuresAreErrorsBeforeAndInTheMiddleOfAStream) {
  StartJob(nullptr);
  const auto fail = [&](const serving::Request& request) {
    job_->Send({.request_id = request.id, .finish = serving::Finish::kFailed, .error = "NaN"});
  };
  for (const bool begun : {false, true}) {
    SCOPED_TRACE(begun);
    client_.Post("/v1/completions", R"({"prompt": "a", "stream": true})");
    const std::optional<serving::Request> request = job_->WaitForRequest();
    ASSERT_TRUE(request.has_value());
    if (begun) {
      job_->Send(TextOutput(request->id, "one", serving::Finish::kNotFinished));
      EXPECT_EQ(client_.ReadHead().status, 200);
      EXPECT_THAT(client_.ReadChunk(), HasSubstr("\"one\""));
      fail(*request);
      const std::string last = client_.ReadChunk();
      EXPECT_THAT(last, AllOf(HasSubstr("data: {\"type\":\"error\",\"error\":{\"message\":"),
                              HasSubstr("NaN"), HasSubstr("data: [DONE]\n\n")));
      EXPECT_EQ(client_.ReadChunk(), "");
    } else {
      fail(*request);
      const Response response = client_.Read();
      EXPECT_EQ(response.status, 500);
      EXPECT_THAT(response.body, HasSubstr("NaN"));
    }
  }
}

TEST_F(GatewayTest, TextAndTokensByTheTokenizer) {
  EXPECT_EQ(PostJson("/tokenize", {{"prompt", "ab"}}),
            json::parse(R"({"tokens": [97, 98], "count": 2, "max_model_len": 64})"));
  EXPECT_EQ(PostJson("/tokenize", {{"content", "a<eos>"}, {"parse_special", true}})["tokens"],
            json({97, 256}));
  EXPECT_EQ(PostJson("/tokenize", {{"content", "<eos>"}})["count"], 5);
  EXPECT_EQ(PostJson("/detokenize", {{"tokens", {97, 98}}}),
            json({{"prompt", "ab"}, {"content", "ab"}}));
  EXPECT_EQ(PostJson("/tokenize", json::object(), 400)["error"]["param"], "prompt");
  EXPECT_EQ(PostJson("/detokenize", {{"tokens", "x"}}, 400)["error"]["param"], "tokens");
  EXPECT_EQ(PostJson("/detokenize", {{"tokens", {1, 257}}}, 400)["error"]["param"], "tokens[1]");
}

}  // namespace
}  // namespace skein::coordinator

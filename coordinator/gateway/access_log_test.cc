// What the log tells of requests, over HTTP and gRPC, and what it does not.
#include "coordinator/service/access_log.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log/log.h"
#include "base/log/log_options.h"
#include "base/test_util.h"
#include "coordinator/access/access.h"
#include "coordinator/gateway/gateway_fixture.h"
#include "coordinator/journal/journal.h"
#include "coordinator/service/response_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "serving/keys/key_file.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kTraceparent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

class AccessLogTest : public GatewayTest {
 protected:
  AccessLogTest() {
    static std::atomic<int> number = 0;
    file_ = absl::StrCat(testing::TempDir(), "/access-", number++, ".log");
    SKEIN_EXPECT_OK(InitLogging(
        "coordinator",
        LogOptions{.level = "trace", .format = LogOptions::Format::kJson, .file = file_}));
  }
  ~AccessLogTest() override { EnableAccessLog(true); }

  // Whole lines: the last one may be on its way to the file.
  std::string Log() const {
    FlushLog();
    std::string log = ReadFileOrEmpty(file_);
    log.resize(log.rfind('\n') + 1);
    return log;
  }
  // The lines of calls of the route, once there are so many.
  std::vector<json> Calls(const std::string& route, size_t count) {
    std::vector<json> calls;
    EXPECT_TRUE(TestCoordinator::WaitFor([&] {
      calls.clear();
      for (const absl::string_view text : absl::StrSplit(Log(), '\n', absl::SkipEmpty())) {
        json line = json::parse(std::string(text));
        if (line["message"] == "access" && line["route"] == route) calls.push_back(line);
      }
      return calls.size() >= count;
    })) << Log();
    EXPECT_EQ(calls.size(), count) << Log();
    calls.resize(count);
    return calls;
  }
  Response PostTraced(const std::string& path, const std::string& body,
                      const std::string& headers) {
    client_.Send(absl::StrCat("POST ", path, " HTTP/1.1\r\n", headers,
                              "Content-Type: application/json\r\nContent-Length: ", body.size(),
                              "\r\n\r\n", body));
    return client_.Read();
  }

  std::string file_;
};

TEST_F(AccessLogTest, ALineTellsOfARequest) {
  StartJob(Echo);
  const Response response = PostTraced("/v1/completions", R"({"prompt": "abc", "max_tokens": 20})",
                                       absl::StrCat("TraceParent: ", kTraceparent, "\r\n"));
  ASSERT_EQ(response.status, 200);
  const json line = Calls("/v1/completions", 1)[0];
  EXPECT_EQ(line["level"], "info");
  EXPECT_EQ(line["protocol"], "http");
  EXPECT_EQ(line["method"], "POST");
  EXPECT_EQ(line["status"], "200");
  EXPECT_EQ(line["answer_bytes"], response.body.size());
  EXPECT_EQ(line["prompt_tokens"], 3);
  EXPECT_EQ(line["answer_tokens"], json::parse(response.body)["usage"]["completion_tokens"]);
  EXPECT_EQ(line["trace_id"], kTrace);
  EXPECT_EQ(line["request_id"], LoggedId(json::parse(response.body)["id"].get<std::string>()));
  EXPECT_THAT(line["client"].get<std::string>(), StartsWith("127.0.0.1:"));
  EXPECT_FALSE(line.contains("aborted"));
  EXPECT_FALSE(line.contains("key"));
  const double queue = line["queue_ms"], first = line["first_token_ms"], total = line["total_ms"];
  EXPECT_GE(queue, 0);
  EXPECT_GE(first, queue);
  EXPECT_GE(total, first);
}

// A trace that is not as it should be is none; neither is one of two.
TEST_F(AccessLogTest, OnlyAValidTraceIsTold) {
  StartJob(Echo);
  const std::string body = R"({"prompt": "abc"})";
  PostTraced("/v1/completions", body, "traceparent: 00-0-0-01\r\n");
  PostTraced(
      "/v1/completions", body,
      absl::StrCat("traceparent: ", kTraceparent, "\r\ntraceparent: ", kTraceparent, "\r\n"));
  for (const json& line : Calls("/v1/completions", 2)) EXPECT_FALSE(line.contains("trace_id"));
}

TEST_F(AccessLogTest, RefusalsAndWhatNobodyKnowsAreTold) {
  PostTraced("/v1/completions", "{", absl::StrCat("traceparent: ", kTraceparent, "\r\n"));
  PostTraced("/v1/completions", R"({"prompt": "abc"})", "");
  client_.Send("BREW /a%20secret?of=mine HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client_.Read().status, 404);
  HttpTestClient broken(coordinator_.http_address());
  broken.Send("nonsense\r\n\r\n");
  EXPECT_EQ(broken.Read().status, 400);
  const std::vector<json> calls = Calls("/v1/completions", 2);
  EXPECT_EQ(calls[0]["status"], "400");
  EXPECT_EQ(calls[0]["trace_id"], kTrace);
  EXPECT_EQ(calls[1]["status"], "503");
  EXPECT_FALSE(calls[1].contains("request_id"));
  const json other = Calls("other", 1)[0];
  EXPECT_EQ(other["method"], "other");
  EXPECT_EQ(Calls("refused", 1)[0]["status"], "400");
  EXPECT_THAT(Log(), Not(HasSubstr("secret")));
}

// What programs ask every few seconds is for those who look for it.
TEST_F(AccessLogTest, ProbesAreToldAtDebugUnlessTheyFail) {
  client_.Get("/health");
  EXPECT_EQ(client_.Read().status, 200);
  client_.Get("/ready");
  EXPECT_EQ(client_.Read().status, 503);
  EXPECT_EQ(Calls("/health", 1)[0]["level"], "debug");
  EXPECT_EQ(Calls("/ready", 1)[0]["level"], "info");
  coordinator_.Status();
  EXPECT_EQ(Calls("/skein.cluster.v1.Cluster/GetStatus", 1)[0]["level"], "debug");
}

TEST_F(AccessLogTest, AClientThatGoesIsTold) {
  job_ = std::make_unique<FakeJob>(FakeJobOptions{.coordinator = coordinator_.address()});
  ASSERT_TRUE(coordinator_.WaitUntilServing());
  client_.Post("/v1/completions", R"({"prompt": "abc"})");
  const std::optional<serving::Request> request = job_->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  client_.Close();
  const json line = Calls("/v1/completions", 1)[0];
  EXPECT_EQ(line["status"], "499");
  EXPECT_EQ(line["aborted"], true);
  EXPECT_EQ(line["prompt_tokens"], 3);
  EXPECT_EQ(line["answer_tokens"], 0);
  EXPECT_TRUE(line.contains("queue_ms"));
  EXPECT_FALSE(line.contains("first_token_ms"));
}

TEST_F(AccessLogTest, GrpcIsToldAlike) {
  StartJob(Echo);
  grpc::ClientContext context;
  context.AddMetadata("traceparent", kTraceparent);
  const Answer answer = coordinator_.Ask(PromptRequest("abc"), context);
  ASSERT_TRUE(answer.status.ok());
  const json line = Calls("/skein.v1.Inference/Generate", 1)[0];
  EXPECT_EQ(line["protocol"], "grpc");
  EXPECT_EQ(line["status"], "OK");
  EXPECT_EQ(line["trace_id"], kTrace);
  EXPECT_EQ(line["request_id"], answer.events[0].accepted().request_id());
  EXPECT_EQ(line["prompt_tokens"], 3);
  EXPECT_EQ(line["answer_tokens"], answer.last().finished().usage().completion_tokens());
  EXPECT_THAT(line["client"].get<std::string>(), StartsWith("127.0.0.1:"));
  int64_t bytes = 0;
  for (const v1::GenerateEvent& event : answer.events) {
    bytes += static_cast<int64_t>(event.ByteSizeLong());
  }
  EXPECT_EQ(line["answer_bytes"], bytes);
  v1::GenerateRequest wrong = PromptRequest("abc");
  wrong.set_model("another");
  coordinator_.Ask(wrong);
  EXPECT_EQ(Calls("/skein.v1.Inference/Generate", 2)[1]["status"], "NOT_FOUND");
}

TEST_F(AccessLogTest, EachCallHasItsRoute) {
  {
    grpc::ClientContext context;
    v1::ResumeRequest request;
    request.set_request_id("req-unknown");
    v1::GenerateEvent event;
    const auto reader = coordinator_.inference().Resume(&context, request);
    EXPECT_FALSE(reader->Read(&event));
    reader->Finish();
  }
  grpc::ClientContext context;
  v1::DiscardResponse response;
  coordinator_.inference().Discard(&context, {}, &response);
  EXPECT_EQ(Calls("/skein.v1.Inference/Resume", 1)[0]["status"], "NOT_FOUND");
  EXPECT_EQ(Calls("/skein.v1.Inference/Discard", 1)[0]["level"], "info");
}

// Whether or not the key may do what it is used for.
TEST_F(AccessLogTest, AKeyIsToldByItsName) {
  const std::string keys = absl::StrCat(testing::TempDir(), "/access-keys");
  SKEIN_ASSERT_OK(WriteFile(
      keys,
      absl::StrCat(serving::KeyLine({.name = "alice", .hash = serving::HashOfKey("sk-alice")}),
                   " requests-per-minute=1\n")));
  const auto access = Access::Open({.keys_file = keys}, &RealClock::Get()).value();
  Daemon::Options options = Options();
  options.gatekeeper.access = access.get();
  const TestCoordinator guarded(options, Model());
  HttpTestClient client(guarded.http_address());
  for (const int status : {404, 429}) {
    client.Send("GET /v1/models/none HTTP/1.1\r\nx-api-key: sk-alice\r\n\r\n");
    EXPECT_EQ(client.Read().status, status);
  }
  for (const json& line : Calls("/v1/models/", 2)) EXPECT_EQ(line["key"], "alice");
  EXPECT_THAT(Log(), Not(HasSubstr("sk-alice")));
}

// Who knows a whole id may read the answer.
TEST_F(AccessLogTest, AnAnswerThatIsKeptIsNamedInPart) {
  const auto journal = Journal::Open({.folder = absl::StrCat(testing::TempDir(), "/kept")}).value();
  Daemon::Options options = Options();
  options.journal = journal.get();
  TestCoordinator keeping(options, Model());
  const FakeJob job({.coordinator = keeping.address(), .script = Echo});
  ASSERT_TRUE(keeping.WaitUntilServing());
  HttpTestClient client(keeping.http_address());
  client.Post("/v1/completions", R"({"prompt": ["ab", "cd"], "stream": true})");
  const Response stream = client.Read();
  const size_t begin = stream.body.find("cmpl-");
  ASSERT_NE(begin, std::string::npos) << stream.body;
  const std::string id = stream.body.substr(begin, stream.body.find('"', begin) - begin);
  client.Get(absl::StrCat("/v1/answers/", id));
  EXPECT_EQ(client.Read().status, 200);
  for (const char* const route : {"/v1/completions", "/v1/answers/"}) {
    const json line = Calls(route, 1)[0];
    EXPECT_EQ(line["request_id"], LoggedId(id));
    EXPECT_EQ(line.value("requests", 0), std::string(route) == "/v1/completions" ? 2 : 0);
  }
  EXPECT_EQ(LoggedId(id), id.substr(0, std::string("cmpl-").size() + 8));
  EXPECT_THAT(Log(), Not(HasSubstr(id)));
}

TEST_F(AccessLogTest, ACallThatFailsBeforeItHasARequestHasALine) {
  grpc::ClientContext context;
  context.AddMetadata("traceparent", kTraceparent);
  const auto call = coordinator_.inference().GenerateMany(&context);
  ASSERT_TRUE(call->Write(v1::GenerateManyRequest()));  // neither generate nor cancel
  v1::GenerateManyResponse response;
  EXPECT_FALSE(call->Read(&response));
  EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const json line = Calls("/skein.v1.Inference/GenerateMany", 1)[0];
  EXPECT_EQ(line["status"], "INVALID_ARGUMENT");
  EXPECT_EQ(line["trace_id"], kTrace);
}

TEST_F(AccessLogTest, EachRequestOfOneCallHasALine) {
  StartJob(Echo);
  grpc::ClientContext context;
  context.AddMetadata("traceparent", kTraceparent);
  const auto call = coordinator_.inference().GenerateMany(&context);
  for (const uint64_t number : {1, 2}) {
    v1::GenerateManyRequest request;
    request.set_request(number);
    *request.mutable_generate() = PromptRequest(std::string(number, 'a'));
    if (number == 2) request.mutable_generate()->set_model("another");
    ASSERT_TRUE(call->Write(request));
  }
  call->WritesDone();
  v1::GenerateManyResponse response;
  while (call->Read(&response)) {
  }
  ASSERT_TRUE(call->Finish().ok());
  int ok = 0;
  for (const json& line : Calls("/skein.v1.Inference/GenerateMany", 2)) {
    EXPECT_EQ(line["trace_id"], kTrace);
    EXPECT_FALSE(line.contains("aborted"));
    if (line["status"] == "OK") {
      ++ok;
      EXPECT_EQ(line["prompt_tokens"], 1);
    } else {
      EXPECT_EQ(line["status"], "NOT_FOUND");
    }
  }
  EXPECT_EQ(ok, 1);
}

// A loss is told of each request that it befalls, with its trace.
TEST_F(AccessLogTest, ALostReplicaIsToldWithTheTrace) {
  job_ = std::make_unique<FakeJob>(FakeJobOptions{.coordinator = coordinator_.address()});
  ASSERT_TRUE(coordinator_.WaitUntilServing());
  const std::string body = R"({"prompt": "abc"})";
  client_.Send(absl::StrCat("POST /v1/completions HTTP/1.1\r\ntraceparent: ", kTraceparent,
                            "\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
                            "\r\n\r\n", body));
  ASSERT_TRUE(job_->WaitForRequest().has_value());
  job_->Kill(0);
  json found;
  EXPECT_TRUE(TestCoordinator::WaitFor([&] {
    for (const absl::string_view text : absl::StrSplit(Log(), '\n', absl::SkipEmpty())) {
      json line = json::parse(std::string(text));
      if (line["message"].get<std::string>().find("the request goes on elsewhere") !=
          std::string::npos) {
        found = line;
      }
    }
    return !found.is_null();
  })) << Log();
  EXPECT_EQ(found["trace_id"], kTrace);
  EXPECT_THAT(found["request_id"].get<std::string>(), StartsWith("cmpl-"));
}

TEST_F(AccessLogTest, ItCanBeOff) {
  EnableAccessLog(false);
  StartJob(Echo);
  EXPECT_EQ(Post("/v1/completions", {{"prompt", "abc"}}).status, 200);
  EXPECT_TRUE(coordinator_.Ask(PromptRequest("abc")).status.ok());
  absl::SleepFor(absl::Milliseconds(200));  // gRPC ends a call after its client has heard of it
  EXPECT_THAT(Log(), HasSubstr("serves with"));
  EXPECT_THAT(Log(), Not(HasSubstr("completions")));
  EXPECT_THAT(Log(), Not(HasSubstr("Inference/Generate")));
}

// At no level, on no way in, and whatever goes wrong: an answer repeats the prompt here.
TEST_F(AccessLogTest, NeitherPromptsNorAnswersAreLogged) {
  StartJob(Echo);
  const std::string marker = "MARKER";
  const json message = {{"role", "user"}, {"content", marker}};
  const std::vector<std::pair<std::string, json>> requests = {
      {"/v1/completions", {{"prompt", marker}}},
      {"/v1/completions", {{"prompt", marker}, {"stream", true}}},
      {"/v1/completions", {{"prompt", marker}, {"max_tokens", marker}}},
      {"/v1/completions", {{"prompt", std::string(200, 'x') + marker}}},
      {"/v1/completions", {{"prompt", marker}, {"stop", marker}}},
      {"/v1/completions", {{"prompt", marker}, {"model", marker}}},
      {"/v1/chat/completions", {{"messages", json::array({message})}}},
      {"/v1/chat/completions", {{"messages", json::array({message})}, {"stream", true}}},
      {"/v1/chat/completions", {{"messages", marker}}},
      {"/v1/responses", {{"input", marker}}},
      {"/v1/messages", {{"messages", json::array({message})}, {"max_tokens", 9}}},
      {"/v1/embeddings", {{"input", {{"wrong", marker}}}}},
      {"/tokenize", {{"prompt", marker}}},
      {"/apply-template", {{"messages", json::array({message})}}},
      {absl::StrCat("/", marker, "?q=", marker), {{"prompt", marker}}},
  };
  int whole = 0;
  for (const auto& [path, body] : requests) {
    HttpTestClient client(coordinator_.http_address());
    client.Post(path, body.dump());
    whole += client.Read().status == 200 ? 1 : 0;
  }
  EXPECT_GE(whole, 5);
  HttpTestClient broken(coordinator_.http_address());
  broken.Post("/v1/completions", R"({"prompt": "MARKER)");
  EXPECT_EQ(broken.Read().status, 400);
  const Answer answer = coordinator_.Ask(PromptRequest(marker));
  EXPECT_THAT(answer.text(), HasSubstr(marker));
  v1::GenerateRequest wrong = PromptRequest(marker);
  wrong.set_model(marker);
  coordinator_.Ask(wrong);
  Calls("/skein.v1.Inference/Generate", 2);
  EXPECT_THAT(Log(), HasSubstr("\"level\":\"info\""));
  EXPECT_THAT(Log(), Not(HasSubstr(marker)));
}

}  // namespace
}  // namespace skein::coordinator

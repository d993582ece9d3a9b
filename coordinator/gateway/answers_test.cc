// Streams that go on over another connection, and after another coordinator, in each form.
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file.h"
#include "coordinator/access/access.h"
#include "coordinator/gateway/gateway_fixture.h"
#include "coordinator/journal/journal.h"
#include "serving/keys/key_file.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Steps of a fake replica: one letter of each answer at a time.
constexpr char kText[] = "ab\xC3\xA9 the END.";

class AnswersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::ofstream keys(Path("keys"));
    for (const std::string name : {"alice", "bob", "carol", "dave", "erin"}) {
      keys << serving::KeyLine(
          {.name = name, .hash = serving::HashOfKey(absl::StrCat("sk-", name))});
      if (name == "carol") keys << " streams=1";
      if (name == "dave") keys << " tokens-per-minute=5";
      if (name == "erin") keys << " tokens-per-minute=40";
      keys << "\n";
    }
    keys.close();
    Start();
  }
  void TearDown() override { Stop(); }
  void Start(bool with_keys = false) {
    journal_ = Journal::Open({.folder = folder_}).value();
    Daemon::Options options = TestOptions();
    options.model.limits.constraints.max_num_seqs = 8;
    options.model.limits.max_queue = 8;
    options.journal = journal_.get();
    if (with_keys) {
      access_ = Access::Open({.keys_file = Path("keys")}, &RealClock::Get()).value();
      options.gatekeeper.access = access_.get();
    }
    ServedModel model = MakeFakeModel({}, 64);
    model.identity = identity_;
    model.chat_template = model::ChatTemplate::Parse(
        "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}a:");
    coordinator_ = std::make_unique<TestCoordinator>(options, std::move(model));
    job_ = std::make_unique<FakeJob>(FakeJobOptions{.coordinator = coordinator_->address()});
    ASSERT_TRUE(coordinator_->WaitUntilServing());
  }
  void Stop() {
    job_.reset();
    coordinator_.reset();
    journal_.reset();
  }
  void Restart() {
    Stop();
    Start();
  }
  static std::string Path(const std::string& name) {
    return absl::StrCat(::testing::TempDir(), "/", name);
  }

  // Of a request that is none for an answer.
  int StatusOfAnother(const std::string& key) {
    HttpTestClient other(coordinator_->http_address());
    other.Send(absl::StrCat("GET /v1/models HTTP/1.1\r\n", Header(key), "\r\n"));
    return other.Read().status;
  }

  static std::string Header(const std::string& key) {
    return key.empty() ? "" : absl::StrCat("x-api-key: sk-", key, "\r\n");
  }
  std::unique_ptr<HttpTestClient> Post(const std::string& path, const json& body,
                                       const std::string& key = "") {
    auto client = std::make_unique<HttpTestClient>(coordinator_->http_address());
    const std::string text = body.dump();
    client->Send(absl::StrCat("POST ", path, " HTTP/1.1\r\n", Header(key),
                              "Content-Type: application/json\r\nContent-Length: ", text.size(),
                              "\r\n\r\n", text));
    return client;
  }
  std::unique_ptr<HttpTestClient> Return(const std::string& id,
                                         const std::optional<std::string>& last_event,
                                         const std::string& key = "",
                                         const std::string& method = "GET") {
    auto client = std::make_unique<HttpTestClient>(coordinator_->http_address());
    const std::string header =
        last_event.has_value() ? absl::StrCat("Last-Event-ID: ", *last_event, "\r\n") : "";
    client->Send(
        absl::StrCat(method, " /v1/answers/", id, " HTTP/1.1\r\n", Header(key), header, "\r\n"));
    return client;
  }
  // Plays the replica: what is left of `text` for each answer, a letter a step; at most `letters`.
  void Play(const std::vector<serving::Request>& requests, int letters = 1000,
            const std::string& text = kText) {
    for (int step = 0; step < letters; ++step) {
      std::vector<serving::AnswerOutput> outputs;
      for (const serving::Request& request : requests) {
        for (size_t i = 0; i < request.answers.size(); ++i) {
          const size_t at = request.answers[i].output.size() + static_cast<size_t>(step);
          if (at > text.size()) continue;
          const bool end = at == text.size();
          outputs.push_back(AnswerOf(request, i, end ? "" : text.substr(at, 1),
                                     end ? serving::Finish::kEos : serving::Finish::kNotFinished));
          if (at == 0 && i == 0) AddPromptLogprobs(request, outputs.back());
          for (serving::SampledToken& token : outputs.back().tokens) {
            if (request.sampling.logprobs < 0) continue;
            token.logprob = -0.1f * static_cast<float>(at + 1);
          }
        }
      }
      if (outputs.empty()) return;
      job_->SendOutputs(outputs);
    }
  }
  std::vector<serving::Request> Requests(size_t count) {
    std::vector<serving::Request> requests;
    for (size_t i = 0; i < count; ++i) requests.push_back(job_->WaitForRequest().value());
    return requests;
  }

  const std::string folder_ = Path("answers");
  std::string identity_ = "identity";
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Access> access_;
  std::unique_ptr<TestCoordinator> coordinator_;
  std::unique_ptr<FakeJob> job_;
};

struct Dialect {
  std::string path;
  json body;
  size_t prompts = 1;
};
std::vector<Dialect> Dialects() {
  const json messages = json::array({{{"role", "user"}, {"content", "hi"}}});
  return {
      {"/v1/completions", {{"prompt", "hi"}, {"n", 2}, {"logprobs", 2}, {"stop", {"END"}}}},
      {"/v1/completions",
       {{"prompt", {"hi", "ho"}}, {"echo", true}, {"stream_options", {{"include_usage", true}}}},
       2},
      {"/v1/completions",
       {{"prompt", {"hi", "ho"}},
        {"n", 2},
        {"echo", true},
        {"logprobs", 1},
        {"prompt_logprobs", 0}},
       2},
      {"/v1/chat/completions",
       {{"messages", messages},
        {"n", 2},
        {"logprobs", true},
        {"top_logprobs", 1},
        {"stream_options", {{"include_usage", true}}}}},
      {"/v1/chat/completions", {{"messages", messages}, {"max_tokens", 40}}},
      {"/v1/responses", {{"input", "hi"}, {"include", {"message.output_text.logprobs"}}}},
      {"/v1/messages", {{"messages", messages}, {"max_tokens", 40}, {"stop_sequences", {"END"}}}},
  };
}

// What stands behind the event of this number, and the number of events.
std::string Behind(const std::string& stream, int event) {
  size_t at = 0;
  for (int i = 0; i < event; ++i) at = stream.find("\n\n", at) + 2;
  return stream.substr(at);
}
int Count(const std::string& stream) {
  int count = 0;
  for (size_t at = 0; (at = stream.find("\n\n", at)) != std::string::npos; at += 2) ++count;
  return count;
}
// An id is the first thing that a stream tells.
std::string IdOf(const std::string& stream) {
  const size_t begin = stream.find("\"id\":\"") + 6;
  return stream.substr(begin, stream.find('"', begin) - begin);
}

TEST_F(AnswersTest, EachFormGoesOnBehindEveryEventToTheByte) {
  std::vector<std::string> streams;
  for (Dialect& dialect : Dialects()) {
    dialect.body["stream"] = true;
    const auto client = Post(dialect.path, dialect.body);
    Play(Requests(dialect.prompts));
    const Response whole = client->Read();
    ASSERT_EQ(whole.status, 200) << whole.body;
    streams.push_back(whole.body);
  }
  for (const bool restarted : {false, true}) {
    if (restarted) {
      absl::SleepFor(absl::Milliseconds(1100));  // it would be created at another second
      Restart();
    }
    for (const std::string& stream : streams) {
      SCOPED_TRACE(stream);
      const std::string id = IdOf(stream);
      const int events = Count(stream);
      ASSERT_GT(events, 10);
      EXPECT_EQ(Return(id, std::nullopt)->Read().body, stream);
      for (int event = 1; event <= events; ++event) {
        SCOPED_TRACE(event);
        EXPECT_THAT(stream, HasSubstr(absl::StrCat("id: ", event, "\n")));
        const Response rest = Return(id, absl::StrCat(event))->Read();
        EXPECT_EQ(rest.status, 200);
        EXPECT_EQ(rest.body, Behind(stream, event));
      }
      const Response beyond = Return(id, absl::StrCat(events + 1))->Read();
      EXPECT_EQ(beyond.status, 409);
      EXPECT_EQ(json::parse(beyond.body)["error"]["code"], "event_not_given");
    }
  }
}

TEST_F(AnswersTest, OneThatFailedHasNoFurtherEvents) {
  const auto client = Post("/v1/completions", {{"prompt", "hi"}, {"stream", true}});
  const serving::Request request = Requests(1).at(0);
  job_->Send(TextOutput(request.id, "some", serving::Finish::kNotFinished));
  job_->Send(TextOutput(request.id, "", serving::Finish::kFailed));
  const std::string stream = client->Read().body;
  EXPECT_THAT(stream, HasSubstr("\"error\""));
  const int events = Count(stream);
  const Response all = Return(IdOf(stream), absl::StrCat(events))->Read();
  EXPECT_EQ(all.status, 200);
  EXPECT_EQ(all.body, "");
  EXPECT_EQ(Return(IdOf(stream), absl::StrCat(events + 1))->Read().status, 409);
}

TEST_F(AnswersTest, OfAnotherModelIsNoRest) {
  const auto client = Post("/v1/completions", {{"prompt", "hi"}, {"stream", true}});
  Play(Requests(1));
  const std::string id = IdOf(client->Read().body);
  Stop();
  identity_ = "other weights";
  Start();
  const Response rest = Return(id, "1")->Read();
  EXPECT_EQ(rest.status, 409);
  EXPECT_EQ(json::parse(rest.body)["error"]["code"], "model_changed");
}

// The text is held against a stream that was not disturbed.
TEST_F(AnswersTest, OneThatIsBrokenInItsMiddleGoesOnHereAndInTheNextCoordinator) {
  for (Dialect& dialect : Dialects()) {
    SCOPED_TRACE(absl::StrCat(dialect.path, " ", dialect.body.dump()));
    dialect.body["stream"] = true;
    auto undisturbed = Post(dialect.path, dialect.body);
    Play(Requests(dialect.prompts));
    const std::string want = undisturbed->Read().body;

    std::string got;
    {
      const auto client = Post(dialect.path, dialect.body);
      Play(Requests(dialect.prompts), 5);
      client->ReadHead();
      while (Count(got) < 4) got += client->ReadChunk();
    }
    const std::string id = IdOf(got);
    got.resize(got.size() - Behind(got, 4).size());  // the rest is lost with the connection
    {
      const auto client = Return(id, "4");
      EXPECT_EQ(client->ReadHead().status, 200);
    }
    Restart();
    const auto client = Return(id, "4");
    EXPECT_EQ(client->ReadHead().status, 200);
    Play(Requests(dialect.prompts));
    for (std::string chunk; !(chunk = client->ReadChunk()).empty();) got += chunk;
    // Ids and times are each stream's own.
    const auto plain = [&](std::string stream) {
      const std::string random = IdOf(stream).substr(IdOf(stream).find_last_of("-_") + 1);
      for (size_t at; (at = stream.find(random)) != std::string::npos;) {
        stream.erase(at, random.size());
      }
      for (const std::string field : {"\"created\":", "\"created_at\":"}) {
        for (size_t at = 0; (at = stream.find(field, at)) != std::string::npos; at += 5) {
          stream.erase(at + field.size(), 10);
        }
      }
      return stream;
    };
    EXPECT_EQ(plain(got), plain(want));
  }
}

TEST_F(AnswersTest, OnlyTheKeyThatAskedComesBack) {
  Stop();
  Start(/*with_keys=*/true);
  const json body = {{"prompt", "hi"}, {"stream", true}};
  const auto client = Post("/v1/completions", body, "alice");
  Play(Requests(1));
  const std::string stream = client->Read().body;
  const std::string id = IdOf(stream);
  EXPECT_EQ(Return(id, "1", "alice")->Read().body, Behind(stream, 1));
  const Response other = Return(id, "1", "bob")->Read();
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(json::parse(other.body)["error"]["code"], "answer_not_found");
  EXPECT_EQ(Return(id, "1")->Read().status, 401);
  EXPECT_EQ(Return(id, "1", "bob", "DELETE")->Read().status, 404);
  Stop();
  Start(/*with_keys=*/true);
  EXPECT_EQ(Return(id, "1", "bob")->Read().status, 404);
  EXPECT_EQ(Return(id, "1", "alice")->Read().body, Behind(stream, 1));
}

// A key's one stream is in use until the answer has ended, and coming back is no second one.
TEST_F(AnswersTest, WithoutItsClientAnAnswerStillCountsForItsKey) {
  Stop();
  Start(/*with_keys=*/true);
  const json body = {{"prompt", "hi"}, {"stream", true}};
  std::string id;
  {
    const auto client = Post("/v1/completions", body, "carol");
    Play(Requests(1), 1);
    client->ReadHead();
    id = IdOf(client->ReadChunk());
  }
  EXPECT_EQ(StatusOfAnother("carol"), 429);
  const auto client = Return(id, "0", "carol");
  EXPECT_EQ(client->ReadHead().status, 200);
  EXPECT_EQ(Return(id, "0", "carol", "DELETE")->Read().status, 200);
  EXPECT_TRUE(TestCoordinator::WaitFor([&] { return StatusOfAnother("carol") == 200; }));
}

// Else a key could have any number of streams: whoever asked is displaced, and free to ask again.
TEST_F(AnswersTest, WithAnotherReaderAnAnswerStillCountsForItsKey) {
  Stop();
  Start(/*with_keys=*/true);
  const auto first = Post("/v1/completions", {{"prompt", "hi"}, {"stream", true}}, "carol");
  Play(Requests(1), 1);
  first->ReadHead();
  const std::string id = IdOf(first->ReadChunk());
  const auto second = Return(id, "0", "carol");
  EXPECT_EQ(second->ReadHead().status, 200);
  first->ReadUntil("[DONE]");
  EXPECT_EQ(StatusOfAnother("carol"), 429);
  EXPECT_EQ(Return(id, "0", "carol", "DELETE")->Read().status, 200);
  EXPECT_TRUE(TestCoordinator::WaitFor([&] { return StatusOfAnother("carol") == 200; }));
}

TEST_F(AnswersTest, TokensCountOnceHoweverOftenTheyAreTold) {
  Stop();
  Start(/*with_keys=*/true);
  const auto client = Post("/v1/completions", {{"prompt", "hi"}, {"stream", true}}, "erin");
  Play(Requests(1));
  const std::string id = IdOf(client->Read().body);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Return(id, "1", "erin")->Read().status, 200);
  // The prompt, the text and its end: 2, 13 and 1.
  const auto ask = [&](size_t tokens) {
    const json body = {{"prompt", std::string(tokens, 'x')}, {"stream", true}};
    const auto next = Post("/v1/completions", body, "erin");
    Play(Requests(1));
    return next->Read().status;
  };
  EXPECT_EQ(ask(40 - 16 + 1), 429);
  EXPECT_EQ(ask(40 - 16), 200);
}

TEST_F(AnswersTest, APromptThatItsKeyMayNotUseLeavesNothingBehind) {
  Stop();
  Start(/*with_keys=*/true);
  const auto client =
      Post("/v1/completions", {{"prompt", "longer than 5"}, {"stream", true}}, "dave");
  const serving::Request request = Requests(1)[0];
  job_->Send(TextOutput(request.id, "x", serving::Finish::kNotFinished));
  EXPECT_EQ(client->Read().status, 403);
  EXPECT_TRUE(job_->WaitForCancel(request.id));
}

TEST_F(AnswersTest, WhatIsDeletedEndsAtOnce) {
  const auto client = Post("/v1/completions", {{"prompt", "hi"}, {"stream", true}});
  const std::vector<serving::Request> requests = Requests(1);
  Play(requests, 1);
  client->ReadHead();
  const std::string id = IdOf(client->ReadChunk());
  const Response deleted = Return(id, std::nullopt, "", "DELETE")->Read();
  EXPECT_EQ(deleted.status, 200);
  EXPECT_EQ(json::parse(deleted.body)["deleted"], true);
  EXPECT_TRUE(job_->WaitForCancel(requests[0].id));
  std::string rest;
  for (std::string chunk; !(chunk = client->ReadChunk()).empty();) rest += chunk;
  EXPECT_THAT(rest, HasSubstr("\"error\""));
  EXPECT_EQ(Return(id, "1")->Read().status, 404);
}

TEST_F(AnswersTest, WhatIsNotThereIsRefused) {
  const Response unknown = Return("cmpl-1", "1")->Read();
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.body, HasSubstr("'cmpl-1'"));
  const Response post = Return("cmpl-1", "1", "", "POST")->Read();
  EXPECT_EQ(post.status, 405);
  EXPECT_THAT(post.headers.at("allow"), AllOf(HasSubstr("GET"), HasSubstr("DELETE")));

  const auto client = Post("/v1/completions", {{"prompt", "hi"}, {"stream", true}});
  Play(Requests(1));
  const std::string id = IdOf(client->Read().body);
  for (const char* const odd : {"x", "-1", "1.5"}) {
    EXPECT_EQ(Return(id, odd)->Read().status, 400) << odd;
  }
  // One that is no stream is not kept.
  const auto whole = Post("/v1/completions", {{"prompt", "hi"}});
  Play(Requests(1));
  EXPECT_EQ(Return(IdOf(whole->Read().body), "1")->Read().status, 404);
  // What was asked over HTTP is nothing to gRPC's clients, who have no keys.
  grpc::ClientContext context;
  v1::ResumeRequest request;
  request.set_request_id(id);
  const auto answer =
      TestCoordinator::ReadAll(*coordinator_->inference().Resume(&context, request));
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(AnswersTest, WithoutAJournalNothingIsNumbered) {
  TestCoordinator coordinator;
  FakeJob job({.coordinator = coordinator.address(), .script = Echo});
  ASSERT_TRUE(coordinator.WaitUntilServing());
  HttpTestClient client(coordinator.http_address());
  client.Post("/v1/completions", R"({"prompt": "hi", "stream": true})");
  const std::string stream = client.Read().body;
  EXPECT_THAT(stream, Not(HasSubstr("id: ")));
  client.Get("/v1/answers/" + IdOf(stream));
  const Response none = client.Read();
  EXPECT_EQ(none.status, 404);
  EXPECT_THAT(none.body, HasSubstr("--journal"));
}

}  // namespace
}  // namespace skein::coordinator

// The HTTP API of a whole coordinator, on the wire; a scripted job answers.
#include "coordinator/gateway/gateway.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/test_util.h"
#include "coordinator/gateway/http_client_for_tests.h"
#include "coordinator/rpc/fake_job.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {
namespace {

using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Response = HttpTestClient::Response;

serving::AnswerOutput AnswerOf(const serving::Request& request, size_t i, const std::string& text,
                               serving::Finish finish = serving::Finish::kEos) {
  serving::AnswerOutput output = TextOutput(request.id, text, finish);
  output.answer = request.answers[i].index;
  if (request.sampling.logprobs < 0) return output;
  float logprob = -0.5f * static_cast<float>(i + 1);
  for (serving::SampledToken& token : output.tokens) {
    token.logprob = logprob;
    for (int32_t top = 0; top < request.sampling.logprobs; ++top) {
      token.top_logprobs.push_back({.id = 'x' + top, .logprob = logprob - static_cast<float>(top)});
    }
    logprob -= 0.25f;
  }
  return output;
}

// Each answer is "re: " and the prompt, and its number where there are several.
std::vector<serving::AnswerOutput> Echo(const serving::Request& request) {
  std::string prompt;
  for (const int32_t id : request.prompt) prompt += static_cast<char>(id);
  std::vector<serving::AnswerOutput> outputs;
  for (size_t i = 0; i < request.answers.size(); ++i) {
    const std::string number = request.answers.size() > 1 ? absl::StrCat(" ", i) : "";
    const std::string text = absl::StrCat("re: ", prompt, number);
    const auto most = static_cast<size_t>(request.max_tokens);
    outputs.push_back(text.size() < most ? AnswerOf(request, i, text)
                                         : AnswerOf(request, i, text.substr(0, most),
                                                    serving::Finish::kMaxTokens));
    if (request.prompt_logprobs < 0) continue;
    for (size_t t = 1; t < request.prompt.size(); ++t) {
      outputs.back().prompt_logprobs.push_back(
          {.id = request.prompt[t], .logprob = -static_cast<float>(t)});
    }
  }
  return outputs;
}

class GatewayTest : public ::testing::Test {
 protected:
  static Daemon::Options Options() {
    Daemon::Options options = TestOptions();
    options.cluster.constraints.max_num_seqs = 8;
    options.max_queue = 8;
    return options;
  }
  void StartJob(std::function<std::vector<serving::AnswerOutput>(const serving::Request&)> script) {
    job_ = std::make_unique<FakeJob>(
        FakeJobOptions{.coordinator = coordinator_.address(), .script = std::move(script)});
    ASSERT_TRUE(coordinator_.WaitUntilServing());
  }
  Response Post(const std::string& path, const json& body) {
    client_.Post(path, body.dump());
    return client_.Read();
  }
  json PostJson(const std::string& path, const json& body, int status = 200) {
    Response response = Post(path, body);
    EXPECT_EQ(response.status, status) << response.body;
    EXPECT_EQ(response.headers["content-type"], "application/json");
    return json::parse(response.body);
  }
  // The events of a stream without their "data: "; the last is [DONE].
  std::vector<std::string> PostStream(const std::string& path, const json& body) {
    Response response = Post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_THAT(response.headers["content-type"], HasSubstr("text/event-stream"));
    std::vector<std::string> events;
    for (const absl::string_view line : absl::StrSplit(response.body, "\n\n")) {
      if (line.empty()) continue;
      EXPECT_EQ(line.substr(0, 6), "data: ") << line;
      events.emplace_back(line.substr(6));
    }
    return events;
  }

  // Speaks ChatML's way, with the one special token that the tokenizer has.
  static constexpr char kTemplate[] =
      "{% for m in messages %}{% if m.role == 'critic' %}{{ raise_exception('no critics') }}"
      "{% endif %}{{ m.role if m.role[0] == '<' else m.role[0] }}:{{ m.content }}{{ eos_token }}{% "
      "endfor %}"
      "{% if add_generation_prompt %}a:{% endif %}{% if think %}{{ think if think is string else "
      "'?' }}{% endif %}";

  static ServedModel Model() {
    ServedModel model = MakeFakeModel({}, 64);
    model.chat_template = model::ChatTemplate::Parse(kTemplate);
    return model;
  }

  TestCoordinator coordinator_{Options(), Model()};
  std::unique_ptr<FakeJob> job_;
  HttpTestClient client_{coordinator_.http_address()};
};

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

TEST_F(GatewayTest, ATextIsCompleted) {
  StartJob(Echo);
  const json response = PostJson("/v1/completions", {{"model", "fake"}, {"prompt", "hello"}});
  EXPECT_EQ(response["object"], "text_completion");
  EXPECT_EQ(response["model"], "fake");
  EXPECT_THAT(response["id"].get<std::string>(), ::testing::StartsWith("cmpl-"));
  EXPECT_GT(response["created"].get<int64_t>(), 1'600'000'000);
  EXPECT_EQ(response["choices"], json::parse(R"([{"index": 0, "text": "re: hello",
      "logprobs": null, "finish_reason": "stop"}])"));
  EXPECT_EQ(response["usage"], json::parse(R"({"prompt_tokens": 5, "completion_tokens": 10,
      "total_tokens": 15})"));
}

TEST_F(GatewayTest, PromptsOfEachForm) {
  StartJob(Echo);
  const std::pair<json, std::vector<std::string>> kCases[] = {
      {"ab", {"re: ab"}},
      {{97, 98}, {"re: ab"}},
      {{"ab", "c"}, {"re: ab", "re: c"}},
      {json::parse("[[97], [98, 99]]"), {"re: a", "re: bc"}},
  };
  for (const auto& [prompt, want] : kCases) {
    const json response = PostJson("/v1/completions", {{"prompt", prompt}});
    std::vector<std::string> texts;
    for (const json& choice : response["choices"]) texts.push_back(choice["text"]);
    EXPECT_EQ(texts, want) << prompt;
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(response["choices"][i]["index"], i);
  }
}

TEST_F(GatewayTest, AStreamSaysItsPiecesAsTheyCome) {
  StartJob(nullptr);
  client_.Post("/v1/completions", R"({"prompt": "hi", "stream": true,
      "stream_options": {"include_usage": true}})");
  const std::optional<serving::Request> request = job_->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->max_tokens, 16);
  job_->Send(TextOutput(request->id, "one", serving::Finish::kNotFinished));
  EXPECT_EQ(client_.ReadHead().headers["transfer-encoding"], "chunked");
  const auto event = [&] {
    const std::string chunk = client_.ReadChunk();
    EXPECT_EQ(chunk.substr(0, 6), "data: ");
    return json::parse(chunk.substr(6));
  };
  EXPECT_EQ(event()["choices"], json::parse(R"([{"index": 0, "text": "one", "logprobs": null,
      "finish_reason": null}])"));
  job_->Send(TextOutput(request->id, " two", serving::Finish::kEos));
  std::string rest;
  for (std::string chunk; !(chunk = client_.ReadChunk()).empty();) rest += chunk;
  const std::vector<std::string> events = absl::StrSplit(rest, "\n\n", absl::SkipEmpty());
  ASSERT_EQ(events.size(), 4u) << rest;
  EXPECT_EQ(json::parse(events[0].substr(6))["choices"][0]["text"], " two");
  EXPECT_EQ(json::parse(events[1].substr(6))["choices"][0]["finish_reason"], "stop");
  const json usage = json::parse(events[2].substr(6));
  EXPECT_EQ(usage["choices"], json::array());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 8);  // and the end
  EXPECT_EQ(events[3], "data: [DONE]");
}

TEST_F(GatewayTest, SeveralAnswersHaveTheirIndices) {
  StartJob(Echo);
  const json response =
      PostJson("/v1/completions", {{"prompt", {"a", "b"}}, {"n", 2}, {"max_tokens", 20}});
  std::vector<std::string> texts;
  for (const json& choice : response["choices"]) texts.push_back(choice["text"]);
  EXPECT_THAT(texts, ElementsAre("re: a 0", "re: a 1", "re: b 0", "re: b 1"));
  std::map<int, std::string> streamed;
  for (const std::string& event :
       PostStream("/v1/completions", {{"prompt", {"a", "b"}}, {"n", 2}, {"stream", true}})) {
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    streamed[choice["index"]] += choice["text"];
  }
  EXPECT_EQ(streamed, (std::map<int, std::string>{
                          {0, "re: a 0"}, {1, "re: a 1"}, {2, "re: b 0"}, {3, "re: b 1"}}));
}

TEST_F(GatewayTest, TheMostLikelyAnswersAreTheBest) {
  StartJob([](const serving::Request& request) {
    EXPECT_EQ(request.sampling.logprobs, 0);
    std::vector<serving::AnswerOutput> outputs;
    for (size_t i = 0; i < 3; ++i) {
      outputs.push_back(AnswerOf(request, i, absl::StrCat("answer ", i)));
      const float logprob = i == 1 ? -0.1f : -2.0f - static_cast<float>(i);
      for (auto& token : outputs.back().tokens) token.logprob = logprob;
    }
    return outputs;
  });
  const json response = PostJson("/v1/completions", {{"prompt", "a"}, {"n", 2}, {"best_of", 3}});
  ASSERT_EQ(response["choices"].size(), 2u);
  EXPECT_EQ(response["choices"][0]["text"], "answer 1");
  EXPECT_EQ(response["choices"][0]["index"], 0);
  EXPECT_EQ(response["choices"][0]["logprobs"], json());
  EXPECT_EQ(response["choices"][1]["text"], "answer 0");
}

TEST_F(GatewayTest, LogprobsHaveARowForEachToken) {
  StartJob([](const serving::Request& request) {
    return std::vector<serving::AnswerOutput>{
        AnswerOf(request, 0, "a\xC3\xA9", serving::Finish::kMaxTokens)};
  });
  const json response =
      PostJson("/v1/completions", {{"prompt", "hi"}, {"logprobs", 2}, {"max_tokens", 3}});
  EXPECT_EQ(response["choices"][0]["finish_reason"], "length");
  const json logprobs = response["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json({"a", "\uFFFD", "\uFFFD"}));  // parts of a character
  EXPECT_EQ(logprobs["token_logprobs"], json({-0.5, -0.75, -1.0}));
  EXPECT_EQ(logprobs["top_logprobs"][0], json({{"x", -0.5}, {"y", -1.5}}));
  EXPECT_EQ(logprobs["text_offset"], json({0, 1, 2}));
}

TEST_F(GatewayTest, EchoBeginsWithThePrompt) {
  StartJob(Echo);
  json response = PostJson("/v1/completions", {{"prompt", "hey"}, {"echo", true}});
  EXPECT_EQ(response["choices"][0]["text"], "heyre: hey");
  response = PostJson("/v1/completions", {{"prompt", {104, 105}}, {"echo", true}});
  EXPECT_EQ(response["choices"][0]["text"], "hire: hi");
  // As evaluation harnesses ask: the prompt's probabilities alone.
  response = PostJson("/v1/completions",
                      {{"prompt", "hey"}, {"echo", true}, {"max_tokens", 0}, {"logprobs", 0}});
  const json& choice = response["choices"][0];
  EXPECT_EQ(choice["text"], "hey");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["logprobs"]["tokens"], json({"h", "e", "y"}));
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], json({nullptr, -1.0, -2.0}));
  EXPECT_EQ(choice["logprobs"]["text_offset"], json({0, 1, 2}));
  EXPECT_EQ(response["usage"]["completion_tokens"], 0);
}

// They come in pieces, as the prompt is computed, and with the first answer alone.
TEST_F(GatewayTest, EveryAnswerEchoesThePromptsLogprobs) {
  StartJob([](const serving::Request& request) {
    std::vector<serving::AnswerOutput> outputs;
    for (size_t t = 1; t < request.prompt.size(); ++t) {
      outputs.push_back({.request_id = request.id});
      outputs.back().prompt_logprobs = {
          {.id = request.prompt[t], .logprob = -static_cast<float>(t)}};
    }
    for (size_t i = 0; i < request.answers.size(); ++i) {
      outputs.push_back(AnswerOf(request, i, absl::StrCat(i), serving::Finish::kMaxTokens));
    }
    return outputs;
  });
  const json response =
      PostJson("/v1/completions",
               {{"prompt", "hey"}, {"echo", true}, {"max_tokens", 1}, {"logprobs", 0}, {"n", 2}});
  ASSERT_EQ(response["choices"].size(), 2u);
  for (int i = 0; i < 2; ++i) {
    const json& logprobs = response["choices"][i]["logprobs"];
    EXPECT_EQ(logprobs["tokens"], json({"h", "e", "y", std::to_string(i)}));
    EXPECT_EQ(logprobs["token_logprobs"], json({nullptr, -1.0, -2.0, -0.5 * (i + 1)}));
    EXPECT_EQ(logprobs["text_offset"], json({0, 1, 2, 3}));
  }
}

TEST_F(GatewayTest, SamplersGoByTheirNames) {
  StartJob(nullptr);
  client_.Post("/v1/completions", R"({"prompt": "a", "temperature": 0.5, "top_p": 0.9, "top_k": -1,
      "min_p": 0.05, "typical_p": 0.8, "repeat_penalty": 1.1, "presence_penalty": 0.2,
      "frequency_penalty": 0.3, "seed": -7, "mirostat": 2, "mirostat_eta": 0.2,
      "dry_multiplier": 0.8, "dry_base": 2, "dry_allowed_length": 3, "dry_last_n": 64,
      "dry_sequence_breakers": ["!"], "min_tokens": 2, "ignore_eos": true, "stop": "end",
      "stop_token_ids": [7, 8], "logit_bias": {"65": -100, "66": 1.5}, "priority": 5,
      "max_tokens": 9, "user": "ignored", "unheard_of": {"x": 1}})");
  const std::optional<serving::Request> request = job_->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  const serving::SamplingParams& sampling = request->sampling;
  EXPECT_FLOAT_EQ(sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.9f);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_FLOAT_EQ(sampling.min_p, 0.05f);
  EXPECT_FLOAT_EQ(sampling.typical_p, 0.8f);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.1f);
  EXPECT_FLOAT_EQ(sampling.presence_penalty, 0.2f);
  EXPECT_FLOAT_EQ(sampling.frequency_penalty, 0.3f);
  EXPECT_EQ(sampling.seed, static_cast<uint64_t>(-7));
  EXPECT_FLOAT_EQ(sampling.mirostat_tau, 5.0f);
  EXPECT_FLOAT_EQ(sampling.mirostat_eta, 0.2f);
  EXPECT_FLOAT_EQ(sampling.dry_multiplier, 0.8f);
  EXPECT_FLOAT_EQ(sampling.dry_base, 2.0f);
  EXPECT_EQ(sampling.dry_allowed_length, 3);
  EXPECT_EQ(sampling.dry_last_n, 64);
  EXPECT_EQ(sampling.dry_breakers, (std::vector<std::vector<int32_t>>{{'!'}}));
  EXPECT_EQ(sampling.min_tokens, 2);
  EXPECT_THAT(request->eos_token_ids, ElementsAre(7, 8));
  EXPECT_EQ(sampling.logit_bias, (std::vector<serving::TokenBias>{{65, -100.0f}, {66, 1.5f}}));
  EXPECT_EQ(request->priority, 5);
  EXPECT_EQ(request->max_tokens, 9);
  job_->Send(TextOutput(request->id, "the end", serving::Finish::kNotFinished));
  const json response = json::parse(client_.Read().body);
  EXPECT_EQ(response["choices"][0]["text"], "the ");
  EXPECT_EQ(response["choices"][0]["finish_reason"], "stop");
}

TEST_F(GatewayTest, WrongRequestsNameTheirField) {
  StartJob(Echo);
  const struct {
    std::string body;
    std::string param;  // "": none
    std::string why;
  } kCases[] = {
      {R"({)", "", "bad JSON at offset 1"},
      {R"([1])", "", "no JSON object"},
      {R"({"prompt": "a", "prompt": "b"})", "", "bad JSON"},
      {absl::StrCat(std::string(100, '['), std::string(100, ']')), "", "bad JSON"},
      {R"({})", "prompt", "is missing"},
      {R"({"prompt": 3})", "prompt", "is expected"},
      {R"({"prompt": []})", "prompt", "is expected"},
      {R"({"prompt": ["a", 3]})", "prompt", "is expected"},
      {R"({"prompt": [97, -1]})", "prompt", "is expected"},
      {R"({"prompt": ""})", "prompt", "empty"},
      {R"({"prompt": [9999]})", "prompt[0]", "not in [0, 256]"},
      {R"({"prompt": "a", "model": 3})", "model", "a string"},
      {R"({"prompt": "a", "temperature": "hot"})", "temperature", "a number"},
      {R"({"prompt": "a", "temperature": -1})", "temperature", "not in [0, 100]"},
      {R"({"prompt": "a", "top_p": 0})", "top_p", "not in (0, 1]"},
      {R"({"prompt": "a", "top_k": 1.5})", "top_k", "1.5"},
      {R"({"prompt": "a", "n": 0})", "n", "0 is not in [1"},
      {R"({"prompt": "a", "n": 17})", "n", "17 is not in [1, 16]"},
      {R"({"prompt": "a", "best_of": 1, "n": 2})", "best_of", "less than n"},
      {R"({"prompt": "a", "best_of": 2, "stream": true})", "best_of", "stream"},
      {R"({"prompt": "a", "stream": "yes"})", "stream", "true or false"},
      {R"({"prompt": "a", "suffix": "z"})", "suffix", "not supported"},
      {R"({"prompt": "a", "prompt_logprobs": 1})", "prompt_logprobs", "not yet"},
      {R"({"prompt": "a", "echo": true, "logprobs": 1, "stream": true})", "echo", "streamed"},
      {R"({"prompt": ["a", "b", "c", "d", "e", "f", "g", "h", "i"], "n": 15})", "n", "135 answers"},
      {R"({"prompt": "a", "logprobs": 21})", "logprobs", "not in [0, 20]"},
      {R"({"prompt": "a", "logprobs": true})", "logprobs", "an integer"},
      {R"({"prompt": "a", "max_tokens": 0})", "max_tokens", "echo alone"},
      {R"({"prompt": "a", "max_tokens": 64})", "max_tokens", "not in [1, 63]"},
      {R"({"prompt": "a", "stop": [1]})", "stop", "a string"},
      {R"({"prompt": "a", "stop": ""})", "stop[0]", "0 bytes"},
      {R"({"prompt": "a", "logit_bias": [1]})", "logit_bias", "an object"},
      {R"({"prompt": "a", "logit_bias": {"x": 1}})", "logit_bias", "\"x\""},
      {R"({"prompt": "a", "stop_token_ids": ["x"]})", "stop_token_ids", "token ids"},
      {R"({"prompt": "a", "stop_token_ids": [999]})", "stop_token_ids[0]", "999"},
      {R"({"prompt": "a", "mirostat": 1})", "mirostat", "version 1"},
      {R"({"prompt": "a", "stream_options": {"include_usage": 1}})", "stream_options.include_usage",
       "true or false"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.body);
    client_.Post("/v1/completions", c.body);
    const Response response = client_.Read();
    EXPECT_EQ(response.status, 400);
    const json error = json::parse(response.body)["error"];
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_EQ(error["param"], c.param.empty() ? json() : json(c.param));
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(c.why));
    if (!c.param.empty()) {
      EXPECT_THAT(error["message"].get<std::string>(), ::testing::StartsWith(c.param));
    }
  }
  EXPECT_EQ(
      PostJson("/v1/completions", {{"prompt", "a"}, {"model", "other"}}, 404)["error"]["code"],
      "model_not_found");
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

json Messages(const std::vector<std::pair<std::string, json>>& list) {
  json messages = json::array();
  for (const auto& [role, content] : list) {
    messages.push_back({{"role", role}, {"content", content}});
  }
  return messages;
}

TEST_F(GatewayTest, AChatIsAnswered) {
  StartJob(nullptr);
  client_.Post(
      "/v1/chat/completions",
      json({{"model", "fake"}, {"messages", Messages({{"system", "x"}, {"user", "hi"}})}}).dump());
  const std::optional<serving::Request> request = job_->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  EXPECT_THAT(request->prompt, ElementsAre('s', ':', 'x', 256, 'u', ':', 'h', 'i', 256, 'a', ':'));
  EXPECT_EQ(request->max_tokens, 64 - 11);  // the rest of the context
  job_->Send(TextOutput(request->id, "hello"));
  const json response = json::parse(client_.Read().body);
  EXPECT_EQ(response["object"], "chat.completion");
  EXPECT_THAT(response["id"].get<std::string>(), ::testing::StartsWith("chatcmpl-"));
  EXPECT_EQ(response["choices"], json::parse(R"([{"index": 0, "message": {"role": "assistant",
      "content": "hello", "refusal": null}, "logprobs": null, "finish_reason": "stop"}])"));
  EXPECT_EQ(response["usage"]["prompt_tokens"], 11);
}

TEST_F(GatewayTest, WhatUsersWriteIsNoSpecialToken) {
  StartJob(nullptr);
  client_.Post("/v1/chat/completions",
               json({{"messages", Messages({{"user", "a<eos>"}})}, {"max_tokens", 3}}).dump());
  const std::optional<serving::Request> request = job_->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(std::count(request->prompt.begin(), request->prompt.end(), 256), 1);  // the template's
  EXPECT_EQ(request->prompt.size(), 2u + 6 + 1 + 2);
  EXPECT_EQ(request->max_tokens, 3);
}

TEST_F(GatewayTest, NamesAndArgumentsOfUsersAreNoSpecialTokensEither) {
  StartJob(nullptr);
  client_.Post("/v1/chat/completions",
               R"({"messages": [{"role": "<eos>", "content": "a"}], "max_tokens": 3,
                   "chat_template_kwargs": {"think": "<eos>", "eos_token": "b"}})");
  const std::optional<serving::Request> request = job_->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(std::count(request->prompt.begin(), request->prompt.end(), 256), 1);
}

TEST_F(GatewayTest, AChatStreamsItsRoleItsPiecesAndItsEnd) {
  StartJob([](const serving::Request& request) {
    return std::vector<serving::AnswerOutput>{
        AnswerOf(request, 0, "one", serving::Finish::kNotFinished),
        AnswerOf(request, 0, " two", serving::Finish::kMaxTokens)};
  });
  const std::vector<std::string> events =
      PostStream("/v1/chat/completions", {{"messages", Messages({{"user", "hi"}})},
                                          {"max_completion_tokens", 7},
                                          {"max_tokens", 50},
                                          {"stream", true},
                                          {"stream_options", {{"include_usage", true}}}});
  ASSERT_GE(events.size(), 5u);
  const json first = json::parse(events[0]);
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["choices"], json::parse(R"([{"index": 0, "delta": {"role": "assistant",
      "content": ""}, "logprobs": null, "finish_reason": null}])"));
  std::string text;
  for (size_t i = 1; i + 3 < events.size(); ++i) {
    const json chunk = json::parse(events[i]);
    EXPECT_EQ(chunk["id"], first["id"]);
    text += chunk["choices"][0]["delta"]["content"];
  }
  EXPECT_EQ(text, "one two");
  const json end = json::parse(events[events.size() - 3]);
  EXPECT_EQ(end["choices"][0]["delta"], json::object());
  EXPECT_EQ(end["choices"][0]["finish_reason"], "length");
  const json usage = json::parse(events[events.size() - 2]);
  EXPECT_EQ(usage["choices"], json::array());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 7);
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST_F(GatewayTest, ChatsTellLogprobsOfEachToken) {
  StartJob([](const serving::Request& request) {
    return std::vector<serving::AnswerOutput>{
        AnswerOf(request, 0, "ab", serving::Finish::kMaxTokens)};
  });
  const json response = PostJson("/v1/chat/completions", {{"messages", Messages({{"user", "hi"}})},
                                                          {"max_tokens", 2},
                                                          {"logprobs", true},
                                                          {"top_logprobs", 1}});
  EXPECT_EQ(response["choices"][0]["logprobs"]["content"], json::parse(R"([
      {"token": "a", "logprob": -0.5, "bytes": [97],
       "top_logprobs": [{"token": "x", "logprob": -0.5, "bytes": [120]}]},
      {"token": "b", "logprob": -0.75, "bytes": [98],
       "top_logprobs": [{"token": "x", "logprob": -0.75, "bytes": [120]}]}])"));
}

TEST_F(GatewayTest, MessagesBecomeAPromptByTheTemplate) {
  const auto prompt_of = [&](json body) {
    return PostJson("/apply-template", body)["prompt"].get<std::string>();
  };
  EXPECT_EQ(prompt_of({{"messages", Messages({{"user", "hi"}})}}), "u:hi<eos>a:");
  EXPECT_EQ(prompt_of({{"messages", Messages({{"user", "hi"}})}, {"add_generation_prompt", false}}),
            "u:hi<eos>");
  EXPECT_EQ(prompt_of({{"messages", Messages({{"developer", "x"}})}}), "s:x<eos>a:");
  EXPECT_EQ(prompt_of({{"messages", Messages({{"user", "hi"}})},
                       {"chat_template_kwargs", {{"think", true}}}}),
            "u:hi<eos>a:?");
  const json parts = {{{"type", "text"}, {"text", "one"}}, {{"type", "text"}, {"text", "two"}}};
  EXPECT_EQ(prompt_of({{"messages", Messages({{"user", parts}})}}), "u:one\ntwo<eos>a:");
}

TEST_F(GatewayTest, WrongChatsNameTheirField) {
  StartJob(Echo);
  const struct {
    std::string body, param, why;
  } kCases[] = {
      {R"({})", "messages", "is missing"},
      {R"({"messages": []})", "messages", "a list"},
      {R"({"messages": "hi"})", "messages", "a list"},
      {R"({"messages": ["hi"]})", "messages[0]", "an object"},
      {R"({"messages": [{"content": "a"}]})", "messages[0].role", "is missing"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content", "is missing"},
      {R"({"messages": [{"role": "user", "content": 3}]})", "messages[0].content", "a string"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]})",
       "messages[0].content", "images"},
      {R"({"messages": [{"role": "critic", "content": "a"}]})", "messages", "no critics"},
      {R"({"messages": [{"role": "user", "content": "a"}], "tools": [{}]})", "tools", "not yet"},
      {R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json"}})",
       "response_format", "not yet"},
      {R"({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2})", "top_logprobs",
       "logprobs"},
      {R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 60})", "max_tokens",
       "not in [1,"},
      {R"({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": 1})",
       "chat_template_kwargs", "an object"},
      {absl::StrCat(R"({"messages": [{"role": "user", "content": ")", std::string(70, 'x'),
                    R"("}]})"),
       "messages", "the context of fake holds 64"},
      {absl::StrCat(R"({"messages": [{"role": "user", "content": ")", std::string(9000, 'x'),
                    R"("}]})"),
       "messages", "more than the context"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.body.substr(0, 100));
    client_.Post("/v1/chat/completions", c.body);
    const Response response = client_.Read();
    EXPECT_EQ(response.status, 400);
    const json error = json::parse(response.body)["error"];
    EXPECT_EQ(error["param"], c.param) << error;
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(c.why));
  }
}

TEST_F(GatewayTest, MessagesAreAnthropicsChats) {
  StartJob(nullptr);
  const json block = {{{"type", "text"}, {"text", "be brief"}}};
  client_.Post("/v1/messages", json({{"model", "fake"},
                                     {"max_tokens", 9},
                                     {"system", block},
                                     {"messages", Messages({{"user", "hi"}})},
                                     {"stop_sequences", {"END"}}})
                                   .dump());
  std::optional<serving::Request> request = job_->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  std::string prompt;
  for (const int32_t id : request->prompt) prompt += id == 256 ? '|' : static_cast<char>(id);
  EXPECT_EQ(prompt, "s:be brief|u:hi|a:");
  EXPECT_EQ(request->max_tokens, 9);
  job_->Send(TextOutput(request->id, "so END", serving::Finish::kNotFinished));
  json message = json::parse(client_.Read().body);
  EXPECT_THAT(message["id"].get<std::string>(), ::testing::StartsWith("msg_"));
  message.erase("id");
  EXPECT_EQ(message, json::parse(R"({"type": "message", "role": "assistant", "model": "fake",
      "content": [{"type": "text", "text": "so "}], "stop_reason": "stop_sequence",
      "stop_sequence": "END", "usage": {"input_tokens": 18, "output_tokens": 6}})"));

  client_.Post(
      "/v1/messages",
      json({{"max_tokens", 9}, {"messages", Messages({{"user", "hi"}})}, {"stream", true}}).dump());
  request = job_->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  job_->Send(TextOutput(request->id, "yes", serving::Finish::kEos));
  const Response stream = client_.Read();
  std::vector<std::string> names;
  std::map<std::string, json> events;
  for (const absl::string_view event : absl::StrSplit(stream.body, "\n\n", absl::SkipEmpty())) {
    const std::vector<std::string> lines = absl::StrSplit(event, '\n');
    ASSERT_EQ(lines.size(), 2u) << event;
    names.push_back(lines[0]);
    const json data = json::parse(lines[1].substr(6));
    EXPECT_EQ(lines[0], absl::StrCat("event: ", data["type"].get<std::string>()));
    events[data["type"]] = data;
  }
  EXPECT_THAT(names, ElementsAre("event: message_start", "event: content_block_start",
                                 "event: content_block_delta", "event: content_block_stop",
                                 "event: message_delta", "event: message_stop"));
  EXPECT_EQ(events["message_start"]["message"]["usage"],
            json({{"input_tokens", 7}, {"output_tokens", 0}}));
  EXPECT_EQ(events["content_block_delta"]["delta"],
            json({{"type", "text_delta"}, {"text", "yes"}}));
  EXPECT_EQ(events["message_delta"]["delta"]["stop_reason"], "end_turn");
  EXPECT_EQ(events["message_delta"]["usage"]["output_tokens"], 4);  // and the end

  EXPECT_EQ(PostJson("/v1/messages/count_tokens", {{"messages", Messages({{"user", "hi"}})}}),
            json({{"input_tokens", 7}}));
  const json error = PostJson("/v1/messages", {{"messages", Messages({{"user", "hi"}})}}, 400);
  EXPECT_EQ(error["type"], "error");
  EXPECT_EQ(error["error"]["type"], "invalid_request_error");
  EXPECT_EQ(error["error"]["param"], "max_tokens");
  EXPECT_EQ(PostJson("/v1/messages", {{"max_tokens", 3}}, 400)["error"]["param"], "messages");
}

TEST(GatewayWithoutTemplateTest, ChatsSayWhatIsMissing) {
  TestCoordinator coordinator;
  HttpTestClient client(coordinator.http_address());
  client.Post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "hi"}]})");
  const Response response = client.Read();
  EXPECT_EQ(response.status, 400);
  const json error = json::parse(response.body)["error"];
  EXPECT_EQ(error["code"], "no_chat_template");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("no chat template"));
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

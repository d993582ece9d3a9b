// /v1/completions, on the wire.
#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/gateway/gateway_fixture.h"

namespace skein::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
      "total_tokens": 15, "prompt_tokens_details": {"cached_tokens": 2}})"));
}

TEST_F(GatewayTest, ACachedPromptCountsOnceForItsAnswers) {
  StartJob(Echo);
  const json usage = PostJson("/v1/completions", {{"prompt", {"abcd", "ab"}}, {"n", 2}})["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 6);
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 3);
}

TEST_F(GatewayTest, PromptsHaveLogprobsAsVllmHasThem) {
  StartJob(Echo);
  const json want = json::parse(R"([null, {"98": {"logprob": -1.0, "decoded_token": "b"}},
      {"99": {"logprob": -2.0, "decoded_token": "c"}}])");
  const json response =
      PostJson("/v1/completions", {{"prompt", {"abc", "a"}}, {"prompt_logprobs", 0}});
  EXPECT_EQ(response["choices"][0]["prompt_logprobs"], want);
  EXPECT_EQ(response["choices"][1]["prompt_logprobs"], json::parse("[null]"));
  const json chat =
      PostJson("/v1/chat/completions",
               {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"prompt_logprobs", 0}});
  EXPECT_EQ(chat["prompt_logprobs"].size(), 6u);  // "u:x", the end, "a:"
  EXPECT_EQ(chat["prompt_logprobs"][2],
            json::parse(R"({"120": {"logprob": -2.0, "decoded_token": "x"}})"));
  EXPECT_FALSE(
      PostJson("/v1/completions", {{"prompt", "a"}})["choices"][0].contains("prompt_logprobs"));
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
std::vector<serving::AnswerOutput> PromptInPieces(const serving::Request& request) {
  std::vector<serving::AnswerOutput> outputs;
  const size_t rows = request.prompt_logprobs < 0 ? 0 : request.prompt.size();
  for (size_t t = 1; t < rows; ++t) {
    outputs.push_back({.request_id = request.id});
    outputs.back().prompt_logprobs = {{.id = request.prompt[t], .logprob = -static_cast<float>(t)}};
  }
  for (size_t i = 0; i < request.answers.size(); ++i) {
    const auto finish =
        request.max_tokens == 1 ? serving::Finish::kMaxTokens : serving::Finish::kEos;
    outputs.push_back(AnswerOf(request, i, absl::StrCat(i), finish));
  }
  return outputs;
}

TEST_F(GatewayTest, EveryAnswerEchoesThePromptsLogprobs) {
  StartJob(PromptInPieces);
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

// The choices of a stream's events, as one answer has them: pieces put one behind the other.
json Joined(const std::vector<std::string>& events) {
  std::map<int, json> choices;
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const json chunk = json::parse(event);
    for (const json& piece : chunk["choices"]) {
      const auto [at, first] = choices.emplace(piece["index"], piece);
      json& choice = at->second;
      if (first) continue;
      EXPECT_EQ(choice["finish_reason"], json());
      EXPECT_FALSE(piece.contains("prompt_logprobs"));
      choice["finish_reason"] = piece["finish_reason"];
      choice["text"] = choice["text"].get<std::string>() + piece["text"].get<std::string>();
      if (piece["logprobs"].is_null()) continue;
      for (const auto& [name, rows] : piece["logprobs"].items()) {
        json& to = choice["logprobs"][name];
        to.insert(to.end(), rows.begin(), rows.end());
      }
    }
  }
  json list = json::array();
  for (const auto& [index, choice] : choices) list.push_back(choice);
  return list;
}

void ExpectStreamIsWhole(const std::vector<std::string>& events, const json& whole) {
  EXPECT_EQ(Joined(events), whole["choices"]);
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(json::parse(events[events.size() - 2])["usage"], whole["usage"]);
}

TEST_F(GatewayTest, AStreamIsTheWholeAnswerInPieces) {
  const json kPrompts[] = {"hey", "h", {104, 0xC3, 0xA9, 0xE2, 0x82}, {"hey", "y", "h\u00e9"}};
  const json kOptions[] = {
      {{"logprobs", 2}},
      {{"echo", true}},
      {{"echo", true}, {"logprobs", 0}},
      {{"echo", true}, {"logprobs", 2}, {"n", 2}},
      {{"echo", true}, {"logprobs", 1}, {"max_tokens", 0}},
      {{"echo", true}, {"max_tokens", 0}, {"n", 2}},
      {{"prompt_logprobs", 1}, {"n", 2}},
      {{"echo", true}, {"logprobs", 0}, {"prompt_logprobs", 1}, {"n", 2}},
  };
  std::atomic<bool> in_pieces = false;
  StartJob([&](const serving::Request& request) {
    return in_pieces ? PromptInPieces(request) : Echo(request);
  });
  for (const bool pieces : {false, true}) {
    in_pieces = pieces;
    for (const json& prompt : kPrompts) {
      for (json body : kOptions) {
        body["prompt"] = prompt;
        SCOPED_TRACE(body);
        const json whole = PostJson("/v1/completions", body);
        body["stream"] = true;
        body["stream_options"] = {{"include_usage", true}};
        ExpectStreamIsWhole(PostStream("/v1/completions", body), whole);
      }
    }
  }
  job_.reset();
}

TEST_F(GatewayTest, OffsetsOfAStreamGoOnBehindThePrompt) {
  StartJob(nullptr);
  client_.Post("/v1/completions",
               R"({"prompt": "hi", "echo": true, "logprobs": 0, "stream": true})");
  const std::optional<serving::Request> request = job_->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  serving::AnswerOutput rows = {.request_id = request->id};
  AddPromptLogprobs(*request, rows);
  job_->Send(rows);
  std::vector<json> choices;
  for (const char* text : {"a\u00e9", "b", ""}) {
    job_->Send(AnswerOf(*request, 0, text,
                        *text == 0 ? serving::Finish::kEos : serving::Finish::kNotFinished));
    if (choices.empty()) client_.ReadHead();
    const std::string chunk = client_.ReadChunk();
    choices.push_back(json::parse(chunk.substr(6, chunk.find("\n\n") - 6))["choices"][0]);
  }
  EXPECT_EQ(choices[0]["text"], "hia\u00e9");
  EXPECT_EQ(choices[0]["logprobs"]["tokens"], json({"h", "i", "a", "\uFFFD", "\uFFFD"}));
  EXPECT_EQ(choices[0]["logprobs"]["token_logprobs"], json({nullptr, -1.0, -0.5, -0.75, -1.0}));
  EXPECT_EQ(choices[0]["logprobs"]["text_offset"], json({0, 1, 2, 3, 4}));
  EXPECT_EQ(choices[1]["text"], "b");
  EXPECT_EQ(choices[1]["logprobs"]["tokens"], json({"b"}));
  EXPECT_EQ(choices[1]["logprobs"]["text_offset"], json({4}));
  EXPECT_EQ(choices[2]["logprobs"]["text_offset"], json({5}));
}

// As the prompt's rows come in several events, between which other answers have tokens.
TEST_F(GatewayTest, AnswersOfAStreamWaitForTheLogprobsOfALongPrompt) {
  ServedModel model = MakeFakeModel({}, 8192);
  TestCoordinator coordinator(Options(), std::move(model));
  FakeJob job({.coordinator = coordinator.address(), .script = Echo});
  ASSERT_TRUE(coordinator.WaitUntilServing());
  HttpTestClient client(coordinator.http_address());
  json body = {{"prompt", std::string(5000, 'a')}, {"echo", true}, {"logprobs", 1}, {"n", 2}};
  client.Post("/v1/completions", body.dump());
  const json whole = json::parse(client.Read().body);
  ASSERT_EQ(whole["choices"][1]["logprobs"]["tokens"].size(), 5016u) << whole;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  client.Post("/v1/completions", body.dump());
  const std::string stream = client.Read().body;
  std::vector<std::string> events = absl::StrSplit(stream, "\n\n", absl::SkipEmpty());
  for (std::string& event : events) event = event.substr(6);
  ExpectStreamIsWhole(events, whole);
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
      {R"({"prompt": "a", "prompt_logprobs": 21})", "prompt_logprobs", "not in [0, 20]"},
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
  // The job runs 8 answers at once.
  const json unfit = PostJson("/v1/completions", {{"prompt", "a"}, {"n", 9}}, 422)["error"];
  EXPECT_EQ(unfit["code"], "too_large");
  EXPECT_THAT(unfit["message"].get<std::string>(), HasSubstr("fits no replica"));
}

}  // namespace
}  // namespace skein::coordinator

// Chats in OpenAI's and Anthropic's forms, on the wire.
#include <algorithm>
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
    int status = 400;
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
      {R"({"messages": [{"role": "critic", "content": "a"}]})", "messages", "no critics", 422},
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
    EXPECT_EQ(response.status, c.status);
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

}  // namespace
}  // namespace skein::coordinator

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "coordinator/gateway/gateway_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ResponsesTest : public GatewayTest {
 protected:
  // The prompt that the job is asked with; '|' is the template's special token.
  std::string PromptOf(const json& body) {
    client_.Post("/v1/responses", body.dump());
    const std::optional<serving::Request> request = job_->WaitForRequest();
    if (!request.has_value()) return "no request came";
    std::string prompt;
    for (const int32_t id : request->prompt) prompt += id == 256 ? '|' : static_cast<char>(id);
    job_->Send(TextOutput(request->id, "x", serving::Finish::kEos));
    client_.Read();
    return prompt;
  }

  std::vector<json> Stream(const json& body) {
    const Response response = Post("/v1/responses", body);
    EXPECT_EQ(response.status, 200) << response.body;
    std::vector<json> events;
    for (const absl::string_view text : absl::StrSplit(response.body, "\n\n", absl::SkipEmpty())) {
      const std::vector<std::string> lines = absl::StrSplit(text, '\n');
      EXPECT_EQ(lines.size(), 2u) << text;
      events.push_back(json::parse(lines.at(1).substr(6)));
      EXPECT_EQ(lines[0], "event: " + events.back()["type"].get<std::string>());
      EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
    }
    return events;
  }
};

TEST_F(ResponsesTest, EveryFormOfInputIsAConversation) {
  StartJob(nullptr);
  EXPECT_EQ(PromptOf({{"input", "hi"}}), "u:hi|a:");
  EXPECT_EQ(PromptOf({{"input", "hi"}, {"instructions", "be brief"}}), "s:be brief|u:hi|a:");
  EXPECT_EQ(PromptOf(json::parse(R"({"input": [
      {"role": "developer", "content": "x"},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
      {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
       "content": [{"type": "output_text", "text": "b", "annotations": []}]},
      {"role": "user", "content": "c"}]})")),
            "s:x|u:a|a:b|u:c|a:");
}

TEST_F(ResponsesTest, AResponseIsWhole) {
  StartJob(Echo);
  json response = PostJson(
      "/v1/responses",
      {{"model", "fake"}, {"input", "hi"}, {"temperature", 0.5}, {"metadata", {{"k", "v"}}}});
  EXPECT_THAT(response["id"].get<std::string>(), ::testing::StartsWith("resp_"));
  EXPECT_GT(response["created_at"].get<int64_t>(), 1'600'000'000);
  EXPECT_THAT(response["output"][0]["id"].get<std::string>(), ::testing::StartsWith("msg_"));
  for (const char* field : {"id", "created_at"}) response.erase(field);
  response["output"][0].erase("id");
  json want = json::parse(R"({"object": "response", "status": "completed", "error": null,
      "incomplete_details": null, "instructions": null, "max_output_tokens": null,
      "model": "fake", "parallel_tool_calls": false, "previous_response_id": null, "store": false,
      "temperature": 0.5, "text": {"format": {"type": "text"}}, "tool_choice": "none",
      "tools": [], "top_p": null, "truncation": "disabled", "metadata": {"k": "v"},
      "output": [{"type": "message", "status": "completed", "role": "assistant", "content":
          [{"type": "output_text", "text": "re: u:hi\u0000a:", "annotations": [], "logprobs": []}]}],
      "usage": {"input_tokens": 7, "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
          "output_tokens": 12, "output_tokens_details": {"reasoning_tokens": 0},
          "total_tokens": 19}})");
  EXPECT_EQ(response, want);
}

TEST_F(ResponsesTest, AnAnswerThatIsCutIsIncomplete) {
  StartJob([](const serving::Request& request) {
    return std::vector{AnswerOf(request, 0, "ab", serving::Finish::kMaxTokens)};
  });
  const json response = PostJson("/v1/responses", {{"input", "hi"},
                                                   {"max_output_tokens", 2},
                                                   {"top_logprobs", 1},
                                                   {"include", {"message.output_text.logprobs"}}});
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"], json({{"reason", "max_output_tokens"}}));
  EXPECT_EQ(response["max_output_tokens"], 2);
  const json& message = response["output"][0];
  EXPECT_EQ(message["status"], "incomplete");
  EXPECT_EQ(message["content"][0]["text"], "ab");
  EXPECT_EQ(message["content"][0]["logprobs"], json::parse(R"([
      {"token": "a", "logprob": -0.5, "bytes": [97],
       "top_logprobs": [{"token": "x", "logprob": -0.5, "bytes": [120]}]},
      {"token": "b", "logprob": -0.75, "bytes": [98],
       "top_logprobs": [{"token": "x", "logprob": -0.75, "bytes": [120]}]}])"));
}

TEST_F(ResponsesTest, AStreamTellsEveryPartOfTheResponse) {
  StartJob([](const serving::Request& request) {
    return std::vector{AnswerOf(request, 0, "one", serving::Finish::kNotFinished),
                       AnswerOf(request, 0, " two", serving::Finish::kEos)};
  });
  const std::vector<json> events = Stream({{"input", "hi"}, {"stream", true}});
  std::vector<std::string> types;
  std::string text;
  for (const json& event : events) {
    const std::string type = event["type"];
    if (types.empty() || types.back() != type) types.push_back(type);
    if (type == "response.output_text.delta") text += event["delta"];
  }
  EXPECT_THAT(types,
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.output_text.delta",
                          "response.output_text.done", "response.content_part.done",
                          "response.output_item.done", "response.completed"));
  EXPECT_EQ(text, "one two");
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(events[0]["response"]["output"], json::array());
  EXPECT_EQ(events[2]["item"]["content"], json::array());
  EXPECT_EQ(events[3]["part"]["text"], "");
  const json& end = events.back()["response"];
  EXPECT_EQ(end["id"], events[0]["response"]["id"]);
  EXPECT_EQ(end["output"][0]["id"], events[4]["item_id"]);
  EXPECT_EQ(end["output"][0]["content"][0]["text"], "one two");
  EXPECT_EQ(end["usage"]["output_tokens"], 8);  // and the end
  EXPECT_EQ(events[events.size() - 2]["item"], end["output"][0]);
  EXPECT_EQ(events[events.size() - 4]["text"], "one two");
}

TEST_F(ResponsesTest, AStreamThatFailsSaysSoAsAnEvent) {
  StartJob([](const serving::Request& request) {
    serving::AnswerOutput failed{.request_id = request.id, .finish = serving::Finish::kFailed};
    failed.error = "a logit is NaN";
    return std::vector{AnswerOf(request, 0, "one", serving::Finish::kNotFinished), failed};
  });
  const std::vector<json> events = Stream({{"input", "hi"}, {"stream", true}});
  const json& error = events.back();
  EXPECT_EQ(error["type"], "error");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("a logit is NaN"));
  EXPECT_EQ(error["error"]["message"], error["message"]);
  EXPECT_EQ(error["code"], "internal");
}

TEST_F(ResponsesTest, WrongRequestsNameTheirField) {
  StartJob(Echo);
  const struct {
    std::string body, param, why;
    int status = 400;
  } kCases[] = {
      {R"({})", "input", "is missing"},
      {R"({"input": []})", "input", "a list"},
      {R"({"input": [{"type": "function_call"}]})", "input[0]", "not yet"},
      {R"({"input": ["a"]})", "input[0]", "an object"},
      {R"({"input": [{"role": "user", "content": 3}]})", "input[0].content", "a string"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})", "input[0].content",
       "images"},
      {R"({"input": "a", "instructions": 3})", "instructions", "a string"},
      {R"({"input": "a", "previous_response_id": "resp_1"})", "previous_response_id", "is kept"},
      {R"({"input": "a", "conversation": "c"})", "conversation", "is kept"},
      {R"({"input": "a", "background": true})", "background", "not supported"},
      {R"({"input": "a", "truncation": "auto"})", "truncation", "disabled"},
      {R"({"input": "a", "text": {"format": {"type": "json_schema"}}})", "text.format", "not yet"},
      {R"({"input": "a", "tools": [{}]})", "tools", "not yet"},
      {R"({"input": "a", "n": 2})", "n", "one answer"},
      {R"({"input": "a", "include": "x"})", "include", "a list"},
      {R"({"input": "a", "metadata": 1})", "metadata", "an object"},
      {R"({"input": "a", "max_output_tokens": 0})", "max_output_tokens", "not in [1,"},
      {R"({"input": ")" + std::string(70, 'x') + R"("})", "input", "the context of fake holds"},
      {R"({"input": ")" + std::string(9000, 'x') + R"("})", "input", "more than the context"},
      {R"({"input": [{"role": "critic", "content": "a"}]})", "input", "no critics", 422},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.body.substr(0, 100));
    client_.Post("/v1/responses", c.body);
    const Response response = client_.Read();
    EXPECT_EQ(response.status, c.status);
    const json error = json::parse(response.body)["error"];
    EXPECT_EQ(error["param"], c.param) << error;
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(c.why));
  }
}

}  // namespace
}  // namespace skein::coordinator

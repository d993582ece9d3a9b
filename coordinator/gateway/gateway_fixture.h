// A whole coordinator with an HTTP address, and a job that answers by a script.
#pragma once

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

using ::nlohmann::json;
using Response = HttpTestClient::Response;

inline serving::AnswerOutput AnswerOf(const serving::Request& request, size_t i,
                                      const std::string& text,
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

inline void AddPromptLogprobs(const serving::Request& request, serving::AnswerOutput& output) {
  if (request.prompt_logprobs < 0) return;
  for (size_t t = 1; t < request.prompt.size(); ++t) {
    output.prompt_logprobs.push_back({.id = request.prompt[t], .logprob = -static_cast<float>(t)});
  }
}

// Each answer is "re: " and the prompt, and its number where there are several; half of the prompt
// was cached.
inline std::vector<serving::AnswerOutput> Echo(const serving::Request& request) {
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
    outputs.back().cached_tokens = std::ssize(request.prompt) / 2;
    AddPromptLogprobs(request, outputs.back());
  }
  return outputs;
}

class GatewayTest : public ::testing::Test {
 protected:
  static Daemon::Options Options() {
    Daemon::Options options = TestOptions();
    options.model.limits.constraints.max_num_seqs = 8;
    options.model.limits.max_queue = 8;
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
    EXPECT_THAT(response.headers["content-type"], ::testing::HasSubstr("text/event-stream"));
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

}  // namespace skein::coordinator

// Several models behind one address.
#include <string>

#include "coordinator/gateway/gateway_fixture.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;

// "fake", and "chat" with another template, another tokenizer and a longer context.
class ModelsOverHttpTest : public GatewayTest {
 protected:
  ModelsOverHttpTest() {
    ServedModel chat = MakeFakeModel({"hello"}, 96);
    chat.name = "chat";
    chat.aliases = {"talk"};
    chat.chat_template = model::ChatTemplate::Parse("{{ messages[0].content }}!");
    coordinator_.AddModel(std::move(chat));
  }
  // Echoes, of this model.
  std::unique_ptr<FakeJob> StartJobOf(const std::string& model) {
    auto job = std::make_unique<FakeJob>(FakeJobOptions{
        .coordinator = coordinator_.address(), .job_id = model, .model = model, .script = Echo});
    EXPECT_TRUE(TestCoordinator::WaitFor([&] {
      const cluster::v1::ClusterStatus status = coordinator_.Status();
      for (const auto& of : status.models()) {
        if (of.name() == model) return of.state() == "serving";
      }
      return false;
    }));
    return job;
  }
  json GetJson(const std::string& path, int status = 200) {
    client_.Get(path);
    const Response response = client_.Read();
    EXPECT_EQ(response.status, status) << response.body;
    return json::parse(response.body);
  }
};

TEST_F(ModelsOverHttpTest, AllAreListedWithTheirState) {
  EXPECT_EQ(GetJson("/ready", 503)["error"]["code"], "not_ready");
  const auto job = StartJobOf("chat");
  const json list = GetJson("/v1/models")["data"];
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["id"], "fake");
  EXPECT_EQ(list[0]["state"], "waiting for workers");
  EXPECT_EQ(list[0]["aliases"], json::array());
  EXPECT_EQ(list[0]["max_model_len"], 64);
  EXPECT_EQ(list[1]["id"], "chat");
  EXPECT_EQ(list[1]["state"], "serving");
  EXPECT_EQ(list[1]["aliases"], json::array({"talk"}));
  EXPECT_EQ(list[1]["max_model_len"], 96);
  EXPECT_EQ(GetJson("/v1/models/talk"), list[1]);
  EXPECT_EQ(GetJson("/v1/models/gpt", 404)["error"]["code"], "model_not_found");
  EXPECT_EQ(GetJson("/ready")["status"], "ready");  // one of them does
}

TEST_F(ModelsOverHttpTest, ARequestNamesItsModel) {
  const auto job = StartJobOf("chat");
  for (const char* const name : {"chat", "talk"}) {
    const json answer = PostJson("/v1/completions", {{"prompt", "abc"}, {"model", name}});
    EXPECT_EQ(answer["choices"][0]["text"], "re: abc");
    EXPECT_EQ(answer["model"], "chat");
  }
  PostJson("/v1/completions", {{"prompt", "abc"}, {"model", "fake"}}, 503);
  const json unknown = PostJson("/v1/completions", {{"prompt", "abc"}, {"model", "gpt"}}, 404);
  EXPECT_EQ(unknown["error"]["code"], "model_not_found");
  EXPECT_EQ(unknown["error"]["param"], "model");
  EXPECT_THAT(std::string(unknown["error"]["message"]), HasSubstr("'fake', 'chat' are"));
  const json none = PostJson("/v1/completions", {{"prompt", "abc"}}, 400);
  EXPECT_EQ(none["error"]["param"], "model");
  EXPECT_THAT(std::string(none["error"]["message"]), HasSubstr("'fake', 'chat'"));
  const json number = PostJson("/v1/completions", {{"prompt", "abc"}, {"model", 7}}, 400);
  EXPECT_EQ(number["error"]["param"], "model");
}

TEST_F(ModelsOverHttpTest, ItsOwnTemplateTokenizerAndContextCount) {
  const json messages = {{{"role", "user"}, {"content", "x"}}};
  EXPECT_EQ(PostJson("/apply-template", {{"messages", messages}, {"model", "chat"}})["prompt"],
            "x!");
  EXPECT_EQ(PostJson("/apply-template", {{"messages", messages}, {"model", "fake"}})["prompt"],
            "u:x<eos>a:");
  EXPECT_EQ(PostJson("/tokenize", {{"prompt", "a"}, {"model", "talk"}})["max_model_len"], 96);
  EXPECT_EQ(PostJson("/tokenize", {{"prompt", "a"}, {"model", "fake"}})["max_model_len"], 64);
  EXPECT_EQ(PostJson("/detokenize", {{"tokens", {257}}, {"model", "chat"}})["prompt"], "hello");
  PostJson("/detokenize", {{"tokens", {257}}, {"model", "fake"}}, 400);
  EXPECT_EQ(PostJson("/v1/messages/count_tokens",
                     {{"messages", messages}, {"model", "chat"}})["input_tokens"],
            2);
  for (const char* const path :
       {"/apply-template", "/tokenize", "/detokenize", "/v1/messages", "/v1/messages/count_tokens",
        "/v1/chat/completions", "/v1/responses"}) {
    EXPECT_EQ(PostJson(path, {{"model", "gpt"}}, 404)["error"]["code"], "model_not_found") << path;
  }
  const auto job = StartJobOf("chat");
  const json chat = PostJson("/v1/chat/completions", {{"messages", messages}, {"model", "chat"}});
  EXPECT_EQ(chat["choices"][0]["message"]["content"], "re: x!");
  const json message =
      PostJson("/v1/messages", {{"messages", messages}, {"model", "chat"}, {"max_tokens", 20}});
  EXPECT_EQ(message["content"][0]["text"], "re: x!");
  EXPECT_EQ(message["model"], "chat");
  const json response = PostJson("/v1/responses", {{"input", "y"}, {"model", "chat"}});
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "re: y!");
}

}  // namespace
}  // namespace skein::coordinator

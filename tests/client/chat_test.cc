// `skein chat` against a coordinator in the test's process.
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/rpc/fake_job.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/template/chat_template.h"
#include "tests/client/pseudo_terminal.h"
#include "tests/client/skein_program.h"

namespace skein::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using coordinator::FakeJob;
using coordinator::TestCoordinator;

class ChatTest : public ::testing::Test {
 protected:
  static coordinator::ServedModel Model() {
    coordinator::ServedModel model = coordinator::MakeFakeModel({}, 64);
    model.chat_template = model::ChatTemplate::Parse(
        "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}|{% endfor %}a:");
    return model;
  }

  // Answers "a1", "a2", ... and keeps the prompts.
  void Serve() {
    job_ = std::make_unique<FakeJob>(coordinator::FakeJobOptions{
        .coordinator = coordinator_.address(), .script = [this](const serving::Request& request) {
          prompts_.emplace_back(request.prompt.begin(), request.prompt.end());
          return std::vector{
              coordinator::TextOutput(request.id, absl::StrCat("a", prompts_.size()))};
        }});
    ASSERT_TRUE(coordinator_.WaitUntilServing());
  }
  // `lines` as printf takes them.
  Outcome Chat(const std::string& lines, const std::string& flags = "") {
    const std::string input = absl::StrCat(::testing::TempDir(), "/lines");
    EXPECT_EQ(std::system(absl::StrCat("printf '", lines, "' >", input).c_str()), 0);
    return Skein(
        absl::StrCat("chat --coordinator ", coordinator_.address(), " ", flags, " <", input));
  }

  TestCoordinator coordinator_{coordinator::TestOptions(), Model()};
  std::unique_ptr<FakeJob> job_;
  std::vector<std::string> prompts_;
};

TEST_F(ChatTest, EachMessageBringsTheWholeConversation) {
  Serve();
  const Outcome outcome = Chat("one\\n\\ntwo\\r\\nthree", "--system 'be brief'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "a1\na2\na3\n");
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(prompts_, ElementsAre("s:be brief|u:one|a:", "s:be brief|u:one|a:a1|u:two|a:",
                                    "s:be brief|u:one|a:a1|u:two|a:a2|u:three|a:"));
}

TEST_F(ChatTest, CommandsAreNoMessages) {
  Serve();
  const Outcome outcome = Chat("one\\n/clear\\n/what\\ntwo\\n/quit\\nthree\\n");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "a1\na2\n");
  EXPECT_THAT(outcome.err, HasSubstr("/clear forgets"));
  EXPECT_THAT(prompts_, ElementsAre("u:one|a:", "u:two|a:"));
}

TEST_F(ChatTest, AnAnswerThatFailsEndsAScript) {
  Serve();
  const Outcome outcome = Chat(std::string(80, 'x') + "\\ntwo\\n");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("chat: "));
  EXPECT_THAT(outcome.err, HasSubstr("the context of fake holds 64 tokens"));
  EXPECT_TRUE(prompts_.empty());
}

TEST_F(ChatTest, AtATerminalAFailedMessageIsForgottenAndTheChatGoesOn) {
  Serve();
  PseudoTerminal terminal({"chat", "--coordinator", coordinator_.address()});
  EXPECT_TRUE(terminal.Shows("> "));
  terminal.Type(std::string(80, 'x') + "\n");
  EXPECT_TRUE(terminal.Shows("the context of fake holds 64 tokens"));
  terminal.Type("two\n");
  EXPECT_TRUE(terminal.Shows("a1\r\n> "));
  terminal.Type("\x03");  // Ctrl-C between answers ends the chat
  EXPECT_EQ(terminal.Wait(), 0);
  EXPECT_THAT(prompts_, ElementsAre("u:two|a:"));
}

TEST_F(ChatTest, AnInterruptEndsTheAnswerAloneAndKeepsWhatCame) {
  job_ =
      std::make_unique<FakeJob>(coordinator::FakeJobOptions{.coordinator = coordinator_.address()});
  ASSERT_TRUE(coordinator_.WaitUntilServing());
  Outcome outcome;
  std::thread chat([&] { outcome = Chat("one\\ntwo\\n"); });
  std::optional<serving::Request> request = job_->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  job_->Send(coordinator::TextOutput(request->id, "half", serving::Finish::kNotFinished));
  absl::SleepFor(absl::Milliseconds(200));  // for the text to arrive
  InterruptSkein();
  EXPECT_TRUE(job_->WaitForCancel(request->id));
  request = job_->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(std::string(request->prompt.begin(), request->prompt.end()), "u:one|a:half|u:two|a:");
  job_->Send(coordinator::TextOutput(request->id, "whole"));
  chat.join();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "half\nwhole\n");
  EXPECT_THAT(outcome.err, HasSubstr("(interrupted)"));
}

TEST(ChatWithoutTemplateTest, SaysWhatIsMissing) {
  TestCoordinator coordinator;
  const FakeJob job({.coordinator = coordinator.address()});
  ASSERT_TRUE(coordinator.WaitUntilServing());
  const Outcome outcome =
      Skein(absl::StrCat("chat --coordinator ", coordinator.address(), " </etc/hostname"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("the model has no chat template"));
}

}  // namespace
}  // namespace skein::client

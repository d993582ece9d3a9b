// `skein serve` with real programs: what it tells, serves, passes on, survives, and leaves behind.
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/listening_socket.h"
#include "base/processes.h"
#include "coordinator/gateway/http_client_for_tests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cluster/process.h"

namespace skein::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using nlohmann::json;

constexpr absl::Duration kPatience = absl::Seconds(60);

class ServeTest : public ::testing::Test {
 protected:
  // On free ports.
  Process& Serve(const std::vector<std::string>& arguments) {
    std::vector<std::string> argv = {"client/skein", "serve"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    process_.emplace(Process::Options{
        .name = "serve", .argv = argv, .environment = {{"SKEIN_TEST_MARK", mark_}}});
    return *process_;
  }
  Process& ServeBard(std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.begin(),
                     {"checkpoints/bard", "--http=127.0.0.1:0", "--listen=127.0.0.1:0"});
    return Serve(arguments);
  }
  // Of http://HOST:PORT in what it told.
  std::string HttpAddress() const {
    const std::string output = process_->Output();
    std::smatch found;
    EXPECT_TRUE(std::regex_search(output, found, std::regex("served at http://(\\S+)"))) << output;
    return found[1];
  }
  std::vector<pid_t> Left() const { return FindStarted(0, "SKEIN_TEST_MARK=" + mark_); }
  bool NothingIsLeft() const {
    const absl::Time until = absl::Now() + kPatience;
    while (!Left().empty() && absl::Now() < until) absl::SleepFor(absl::Milliseconds(50));
    return Left().empty();
  }
  // The worker's process of a rank.
  pid_t RankPid() const {
    for (const pid_t pid : Left()) {
      std::string name;
      std::getline(std::ifstream(absl::StrCat("/proc/", pid, "/comm")), name);
      if (name == "worker") return pid;
    }
    return 0;
  }

  const std::string mark_ = absl::StrCat("serve.", getpid(), ".", absl::ToUnixMicros(absl::Now()));
  std::optional<Process> process_;
};

TEST_F(ServeTest, ServesHttpUntilItIsInterrupted) {
  Process& serve = ServeBard();
  ASSERT_TRUE(serve.WaitForOutput("Ctrl-C ends it.", kPatience)) << serve.Output();
  EXPECT_THAT(serve.Output(), AllOf(HasSubstr("bard is served at http://127.0.0.1:"),
                                    HasSubstr("the coordinator reads checkpoints/bard"),
                                    Not(HasSubstr(" I "))));  // what programs log of their course
  coordinator::HttpTestClient client(HttpAddress());
  client.Post("/v1/chat/completions",
              R"({"messages": [{"role": "user", "content": "Good morrow"}], "max_tokens": 5})");
  const auto response = client.Read();
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(json::parse(response.body)["usage"]["completion_tokens"], 5);

  serve.Signal(SIGINT);
  EXPECT_EQ(serve.Wait(kPatience), 0) << serve.Output();
  EXPECT_THAT(serve.Output(), HasSubstr("a second Ctrl-C"));
  EXPECT_TRUE(NothingIsLeft());
}

TEST_F(ServeTest, FlagsGoToTheCoordinatorAndToTheWorkers) {
  Process& serve =
      ServeBard({"--np=2", "--layout", "tp=2", "--verbose", "--", "--log-level=warning"});
  ASSERT_TRUE(serve.WaitForOutput("tp=2,pp=1,dp=1 on 2 ranks", kPatience)) << serve.Output();
  EXPECT_THAT(serve.Output(),
              AllOf(HasSubstr("coordinator | listening on"), Not(HasSubstr("rank 0 | loaded"))));
}

TEST_F(ServeTest, AJobThatDiesIsStartedAgain) {
  Process& serve = ServeBard({"--verbose"});
  // The supervisor asks for it four times a second.
  ASSERT_TRUE(serve.WaitForOutput("job 1 serves, as job", kPatience)) << serve.Output();
  const pid_t rank = RankPid();
  ASSERT_NE(rank, 0);
  ASSERT_EQ(kill(rank, SIGKILL), 0);
  ASSERT_TRUE(serve.WaitForOutput("starts again", kPatience)) << serve.Output();
  const absl::Time until = absl::Now() + kPatience;
  int status = 0;
  while (status != 200 && absl::Now() < until) {
    coordinator::HttpTestClient client(HttpAddress());
    client.Post("/v1/completions", R"({"prompt": "a", "max_tokens": 1})");
    status = client.Read().status;
  }
  EXPECT_EQ(status, 200) << serve.Output();
}

TEST_F(ServeTest, NothingOutlivesItsViolentEnd) {
  Process& serve = ServeBard();
  ASSERT_TRUE(serve.WaitForOutput("Ctrl-C ends it.", kPatience)) << serve.Output();
  EXPECT_GE(Left().size(), 5u);  // itself, the supervisor, the coordinator, mpirun, a worker
  kill(serve.pid(), SIGKILL);
  EXPECT_EQ(serve.Wait(kPatience), 128 + SIGKILL);
  EXPECT_TRUE(NothingIsLeft());
}

// As under nohup(1).
TEST_F(ServeTest, SignalsThatAreIgnoredStayIgnored) {
  process_.emplace(Process::Options{
      .name = "serve",
      .argv = {"sh", "-c",
               "trap '' HUP; exec client/skein serve checkpoints/bard --http=127.0.0.1:0 "
               "--listen=127.0.0.1:0"},
      .environment = {{"SKEIN_TEST_MARK", mark_}}});
  ASSERT_TRUE(process_->WaitForOutput("reads checkpoints/bard", kPatience));
  process_->Signal(SIGHUP);
  ASSERT_TRUE(process_->WaitForOutput("Ctrl-C ends it.", kPatience)) << process_->Output();
  process_->Signal(SIGHUP);
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_THAT(process_->Output(), Not(HasSubstr("a second Ctrl-C")));
  process_->Signal(SIGTERM);
  EXPECT_EQ(process_->Wait(kPatience), 0) << process_->Output();
}

TEST_F(ServeTest, ASecondSignalEndsItAtOnce) {
  Process& serve = ServeBard({"--drain-timeout=1h"});
  ASSERT_TRUE(serve.WaitForOutput("Ctrl-C ends it.", kPatience)) << serve.Output();
  coordinator::HttpTestClient client(HttpAddress());
  // An answer that a drain waits for.
  const std::string body =
      R"({"prompt": "a", "max_tokens": 1000, "ignore_eos": true, "n": 16, "stream": true})";
  client.Post("/v1/completions", body);
  absl::SleepFor(absl::Milliseconds(50));
  serve.Signal(SIGINT);
  ASSERT_TRUE(serve.WaitForOutput("a second Ctrl-C", kPatience));
  absl::SleepFor(absl::Milliseconds(100));  // what comes at once is the same signal
  serve.Signal(SIGINT);
  // Far less than the answers take.
  EXPECT_EQ(serve.Wait(absl::Seconds(8)), 1) << serve.Output();
  EXPECT_THAT(client.ReadUntil("[DONE]"), Not(HasSubstr("\"finish_reason\":\"length\"")));
  EXPECT_TRUE(NothingIsLeft());
}

TEST_F(ServeTest, WhatCannotBeServedIsSaidAtOnce) {
  const ListeningSocket taken;
  const std::string address = absl::StrCat("127.0.0.1:", taken.port());
  const struct {
    std::vector<std::string> arguments;
    int status;
    std::string says;
  } kCases[] = {
      {{"nowhere", "--listen=127.0.0.1:0"}, 1, "nowhere is not there"},
      {{"client", "--listen=127.0.0.1:0", "--http=127.0.0.1:0"}, 1, "config.json"},
      {{"checkpoints/bard", "--listen=127.0.0.1:0", "--http=" + address}, 1, "--http: cannot list"},
      {{"checkpoints/bard", "--listen=" + address}, 1, "--listen: cannot listen on " + address},
      {{"checkpoints/bard", "--listen=127.0.0.1:0", "--http=127.0.0.1:0", "--layout=tp=3"},
       1,
       "layout tp=3 does not work"},
      {{"checkpoints/bard", "--listen=127.0.0.1:0", "--http=127.0.0.1:0", "--nonsense"},
       2,
       "--nonsense"},
      {{"checkpoints/bard", "--listen=127.0.0.1:0", "--http=127.0.0.1:0", "--", "--nonsense"},
       2,
       "worker: "},
      {{"--layout", "tp=2", "checkpoints/bard"}, 2, "MODEL: stands before"},
      {{}, 2, "MODEL is required"},
      {{"checkpoints/bard", "--np=0"}, 2, "--np"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.says);
    Process& serve = Serve(c.arguments);
    EXPECT_EQ(serve.Wait(kPatience), c.status) << serve.Output();
    EXPECT_THAT(serve.Output(), HasSubstr(c.says));
    EXPECT_TRUE(NothingIsLeft());
  }
}

}  // namespace
}  // namespace skein::testing

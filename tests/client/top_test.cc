// `skein top` at a terminal, against a coordinator in the test's process.
#include <signal.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/listening_socket.h"
#include "coordinator/rpc/fake_job.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/pseudo_terminal.h"
#include "tests/client/skein_program.h"

namespace skein::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using coordinator::FakeJob;
using coordinator::TestCoordinator;

constexpr char kOtherPage[] = "\x1b[?1049h\x1b[?25l";
constexpr char kBack[] = "\x1b[?25h\x1b[?1049l";

class TopTest : public ::testing::Test {
 protected:
  TopTest()
      : coordinator_(std::make_unique<TestCoordinator>()), address_(coordinator_->address()) {}

  void StartJob() {
    job_ = std::make_unique<FakeJob>(coordinator::FakeJobOptions{
        .coordinator = address_, .script = [](const serving::Request& request) {
          return std::vector{coordinator::TextOutput(request.id, "eight by")};
        }});
    ASSERT_TRUE(coordinator_->WaitUntilServing());
  }
  std::vector<std::string> Arguments(const std::string& interval = "100ms") const {
    return {"top", "--coordinator", address_, "--interval", interval};
  }

  std::unique_ptr<TestCoordinator> coordinator_;
  const std::string address_;
  std::unique_ptr<FakeJob> job_;
};

TEST_F(TopTest, WhatHappensIsShownUntilQ) {
  PseudoTerminal terminal(Arguments());
  EXPECT_TRUE(terminal.Shows("skein test, fake: no replica serves"));
  EXPECT_THAT(terminal.shown(), StartsWith(kOtherPage));
  EXPECT_FALSE(terminal.EditsLines());
  StartJob();
  EXPECT_TRUE(terminal.Shows("skein test, fake: serving"));
  EXPECT_TRUE(terminal.Shows("job job: serving, tp=1,pp=1,dp=1"));
  EXPECT_TRUE(terminal.Shows("host0             ready"));
  EXPECT_TRUE(coordinator_->Ask(coordinator::PromptRequest("x")).status.ok());
  EXPECT_TRUE(terminal.Shows("(99%: "));  // latencies
  job_->Kill(0);
  EXPECT_TRUE(terminal.Shows("job job: lost 0s ago"));
  EXPECT_TRUE(terminal.Shows("rank 0 on host0"));
  terminal.Forget();
  terminal.Type("xyq");
  EXPECT_EQ(terminal.Wait(), 0);
  EXPECT_THAT(terminal.shown(), HasSubstr(kBack));
  EXPECT_TRUE(terminal.EditsLines());
}

TEST_F(TopTest, CtrlCAndSignalsRestoreTheTerminal) {
  for (const int signal : {0, SIGINT, SIGTERM, SIGHUP}) {
    PseudoTerminal terminal(Arguments("1h"));
    ASSERT_TRUE(terminal.Shows("no replica serves"));
    EXPECT_FALSE(terminal.EditsLines());
    if (signal == 0) {
      terminal.Type("\x03");
    } else {
      EXPECT_EQ(kill(terminal.pid(), signal), 0);
    }
    EXPECT_EQ(terminal.Wait(), 0) << signal;
    EXPECT_THAT(terminal.shown(), HasSubstr(kBack)) << signal;
    EXPECT_TRUE(terminal.EditsLines()) << signal;
  }
}

TEST_F(TopTest, ANewSizeIsUsedAtOnce) {
  StartJob();
  PseudoTerminal terminal(Arguments("1h"));
  ASSERT_TRUE(terminal.Shows("job job: serving, tp=1,pp=1,dp=1 of fake, 1 of 1 ranks"));
  terminal.Forget();
  terminal.Resize(30, 5);
  ASSERT_TRUE(terminal.Shows("more lines: make"));
  EXPECT_THAT(terminal.shown(),
              AllOf(HasSubstr("skein test, fake: serving, up"), Not(HasSubstr("job job"))));
  EXPECT_THAT(terminal.shown(), Not(HasSubstr("make the window larger")));  // 30 columns
}

TEST_F(TopTest, ALostCoordinatorIsToldAndFoundAgain) {
  StartJob();
  PseudoTerminal terminal(Arguments());
  ASSERT_TRUE(terminal.Shows("fake: serving"));
  job_.reset();
  coordinator_.reset();
  terminal.Forget();
  EXPECT_TRUE(terminal.Shows("asking again; what is shown is old)"));
  EXPECT_TRUE(terminal.Shows("fake: serving"));  // as it was
  coordinator::Daemon::Options options = coordinator::TestOptions();
  options.server.listen = address_;
  coordinator_ = std::make_unique<TestCoordinator>(options);
  EXPECT_TRUE(terminal.Shows("fake: no replica serves"));
  terminal.Type("q");
  EXPECT_EQ(terminal.Wait(), 0);
}

TEST_F(TopTest, WhereNobodyListensThatIsToldAndAskedAgain) {
  PseudoTerminal terminal({"top", "--coordinator", "127.0.0.1:1"});
  EXPECT_TRUE(terminal.Shows("127.0.0.1:1"));
  EXPECT_TRUE(terminal.Shows("(for 2s; asking again)"));
  terminal.Type("q");
  EXPECT_EQ(terminal.Wait(), 0);
}

// It takes connections, and says nothing.
TEST_F(TopTest, QDoesNotWaitForACoordinatorThatHangs) {
  const ListeningSocket silent;
  PseudoTerminal terminal({"top", "--coordinator", absl::StrCat("127.0.0.1:", silent.port())});
  ASSERT_TRUE(terminal.Shows(kOtherPage));
  absl::SleepFor(absl::Milliseconds(300));  // it asks by now
  const absl::Time begin = absl::Now();
  terminal.Type("q");
  EXPECT_EQ(terminal.Wait(), 0);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(1));
}

TEST_F(TopTest, OnceOrWithoutATerminalItPrints) {
  StartJob();
  const Outcome outcome = Skein(absl::StrCat("top --coordinator ", address_));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(StartsWith("skein test, fake: serving, up "),
                                 HasSubstr("job job: serving"), Not(HasSubstr("\x1b"))));
  PseudoTerminal terminal({"top", "--once", "--coordinator", address_});
  EXPECT_EQ(terminal.Wait(), 0);
  EXPECT_THAT(terminal.shown(), AllOf(HasSubstr("fake: serving"), Not(HasSubstr("\x1b"))));
  const Outcome nobody = Skein("top --once --coordinator 127.0.0.1:1");
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace skein::client

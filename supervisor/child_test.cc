// Real processes that do not want to end, or say too much.
#include "supervisor/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/log/line_writer.h"
#include "base/processes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "supervisor/program.h"
#include "supervisor/scratch.h"

namespace skein::supervisor {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kPatience = absl::Seconds(20);

bool WaitUntil(const std::function<bool()>& holds) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (!holds()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

// In /tmp: a test's own folder has too long a name for some.
std::string MakeFolder() {
  std::string path = "/tmp/supervisor-test.XXXXXX";
  if (mkdtemp(path.data()) == nullptr) std::abort();
  return path;
}

bool IsGone(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return true;
  return line[line.rfind(')') + 2] == 'Z';
}

class ChildTest : public ::testing::Test {
 protected:
  ~ChildTest() override { std::filesystem::remove_all(folder_); }

  void Start(const std::string& script) {
    auto child = Child::Start({.argv = {"bash", "-c", script},
                               .environment = {{"FOLDER", folder_}},
                               .mark = folder_ + "/"});
    ASSERT_TRUE(child.ok()) << child.status();
    child_ = *std::move(child);
  }

  // Until the child says it; all that it has said.
  std::string Hear(const std::string& text) {
    std::array<char, 4096> bytes;
    const bool said = WaitUntil([&] {
      const ssize_t count = read(child_->output(), bytes.data(), bytes.size());
      if (count > 0) said_.append(bytes.data(), count);
      return said_.find(text) != std::string::npos;
    });
    EXPECT_TRUE(said) << "it did not say " << text << " but: " << said_;
    return said_;
  }

  // The number behind `label=` among what was said.
  pid_t Said(const std::string& label) {
    const std::string text = Hear(label + "=");
    return static_cast<pid_t>(std::stol(text.substr(text.find(label + "=") + label.size() + 1)));
  }

  bool Ends() {
    return WaitUntil([this] {
      int status = 0;
      if (waitpid(child_->pid(), &status, WNOHANG) != child_->pid()) return false;
      child_->Reaped(ExitStatus::FromWait(status));
      return true;
    });
  }

  const std::string folder_ = MakeFolder();
  std::unique_ptr<Child> child_;
  std::string said_;
};

TEST_F(ChildTest, ThatIgnoresTermIsKilled) {
  Start("trap 'echo no' TERM; echo ready; while :; do sleep 0.02; done");
  Hear("ready");
  child_->Terminate();
  Hear("no");
  EXPECT_FALSE(child_->end());
  child_->Kill();
  ASSERT_TRUE(Ends());
  EXPECT_EQ(child_->end()->signal, SIGKILL);
}

TEST_F(ChildTest, ThatIsStoppedTakesTerm) {
  Start("trap 'echo ended; exit 5' TERM; echo ready; while :; do sleep 0.02; done");
  Hear("ready");
  ASSERT_EQ(kill(child_->pid(), SIGSTOP), 0);
  siginfo_t info = {};
  ASSERT_EQ(waitid(P_PID, child_->pid(), &info, WSTOPPED), 0);
  child_->Terminate();
  Hear("ended");
  ASSERT_TRUE(Ends());
  EXPECT_EQ(child_->end()->code, 5);
}

TEST_F(ChildTest, WhatLeftItsSessionAndItsParentsIsKilled) {
  // The middle process ends, so that the last one has another parent.
  Start(
      "(setsid bash -c 'echo far=$$; while :; do sleep 0.02; done' &) & wait; echo ready; exec "
      "sleep 99");
  const pid_t far = Said("far");
  Hear("ready");
  EXPECT_TRUE(child_->AnythingLeft());
  kill(child_->pid(), SIGKILL);
  ASSERT_TRUE(Ends());
  EXPECT_TRUE(child_->AnythingLeft());
  EXPECT_FALSE(IsGone(far));
  EXPECT_TRUE(WaitUntil([&] { return child_->Kill(), !child_->AnythingLeft(); }));
  EXPECT_TRUE(WaitUntil([&] { return IsGone(far); }));  // once its new parent took its end
}

TEST_F(ChildTest, WhatLostItsMarkIsFoundByDescent) {
  Start("env -i setsid bash -c 'echo bare=$$; while :; do sleep 0.02; done' & wait");
  const pid_t bare = Said("bare");
  child_->Kill();
  EXPECT_TRUE(WaitUntil([&] { return IsGone(bare); }));
  ASSERT_TRUE(Ends());
}

TEST_F(ChildTest, AnothersChildrenStay) {
  Start("exec sleep 99");
  auto other = Child::Start({.argv = {"sleep", "99"}, .mark = folder_ + "x/"});
  ASSERT_TRUE(other.ok());
  child_->Kill();
  ASSERT_TRUE(Ends());
  EXPECT_FALSE(child_->AnythingLeft());
  EXPECT_FALSE(IsGone((*other)->pid()));
}

TEST_F(ChildTest, InheritsNoSignalSettingsAndNoFiles) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
  ASSERT_NE(signal(SIGPIPE, SIG_IGN), SIG_ERR);
  const int inherited = open("/dev/null", O_RDONLY);  // without O_CLOEXEC
  Start("grep -E 'Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | tr '\\n' ' '; echo ready");
  EXPECT_THAT(Hear("ready"), AllOf(HasSubstr("SigBlk:\t0000000000000000"),
                                   ContainsRegex("SigIgn:\t0000000[01][08]0000000\n"),
                                   HasSubstr("0 1 2 3 ready")));  // 3 is the folder that ls lists
  close(inherited);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(Ends());
}

TEST_F(ChildTest, ThatCannotBeExecutedIsTold) {
  const auto missing = Child::Start({.argv = {"no-such-program"}});
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("no-such-program is in no folder"));
  const auto nowhere = Child::Start({.argv = {"/nowhere/x"}});
  EXPECT_THAT(std::string(nowhere.status().message()),
              HasSubstr("cannot execute /nowhere/x: No such file"));
}

// --- The end of the supervisor itself ---

// Runs `body` in a process of its own, which is killed then.
void KilledAfter(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    body();
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(ScratchTest, TheKernelKillsAChildWithItsParent) {
  const std::string folder = MakeFolder();
  KilledAfter([&] {
    auto child = Child::Start({.argv = {"sleep", "99"}, .mark = folder + "/"});
    std::ofstream(folder + "/pid") << (*child)->pid();
    (void)child->release();  // SIGKILL runs no destructor
  });
  pid_t pid = 0;
  ASSERT_TRUE(std::ifstream(folder + "/pid") >> pid);
  EXPECT_TRUE(WaitUntil([&] { return IsGone(pid); }));
  std::filesystem::remove_all(folder);
}

TEST(ScratchTest, TheGuardCleansUpAfterAKill) {
  const std::string parent = MakeFolder();
  KilledAfter([&] {
    auto scratch = Scratch::Make(parent);
    const std::string folder = *(*scratch)->MakeFolder();
    std::ofstream(folder + "/file") << "left";
    auto child = Child::Start({.argv = {"bash", "-c",
                                        "setsid bash -c 'echo $$ >\"$0/pid\"; while :; do sleep "
                                        "0.02; done' \"$0\" & wait",
                                        parent},
                               .mark = folder + "/"});
    (void)child->release();
    (void)scratch->release();
    WaitUntil([&] { return std::filesystem::exists(parent + "/pid"); });
  });
  EXPECT_TRUE(WaitUntil([&] {
    int folders = 0;
    for (const auto& entry : std::filesystem::directory_iterator(parent)) {
      folders += entry.is_directory();
    }
    return folders == 0;
  }));
  pid_t pid = 0;
  ASSERT_TRUE(std::ifstream(parent + "/pid") >> pid);
  EXPECT_TRUE(IsGone(pid));
  EXPECT_THAT(FindStarted(0, absl::StrCat(kMarkVariable, "=", parent, "/")), IsEmpty());
  std::filesystem::remove_all(parent);
}

TEST(ScratchTest, GoesWithItsOwner) {
  const std::string parent = MakeFolder();
  auto scratch = Scratch::Make(parent);
  ASSERT_TRUE(scratch.ok());
  EXPECT_TRUE((*scratch)->MakeFolder().ok());
  scratch->reset();
  EXPECT_TRUE(std::filesystem::is_empty(parent));
  std::filesystem::remove_all(parent);
}

// --- A program that is kept up ---

class ProgramTest : public ::testing::Test {
 protected:
  ProgramTest() { signal(SIGPIPE, SIG_IGN); }
  ~ProgramTest() override {
    scratch_.reset();
    std::filesystem::remove_all(parent_);
  }

  // Drives a program until it is over; its output goes to `fd`.
  void RunToTheEnd(const std::string& script, LineWriter* output) {
    Program program(
        {.name = "job 1",
         .restart = {.first_wait = absl::Milliseconds(10)},
         .command =
             [&](const std::string&) { return Child::Options{.argv = {"bash", "-c", script}}; }},
        scratch_.get(), output, absl::Now());
    ASSERT_TRUE(WaitUntil([&] {
      program.Advance(absl::Now());
      program.PassOn();
      int status = 0;
      const pid_t pid = waitpid(-1, &status, WNOHANG);
      if (pid > 0) program.TakeEnd(pid, ExitStatus::FromWait(status));
      return program.over();
    })) << "it did not end";
    EXPECT_TRUE(program.keeper().last_end()->Drained());
  }

  const std::string parent_ = MakeFolder();
  std::unique_ptr<Scratch> scratch_ = *Scratch::Make(parent_);
};

// 20 MB, far more than the pipe and the queue hold.
constexpr const char* kFlood = "yes 'a line of what it says' | head -c 20000000";

TEST_F(ProgramTest, NeverBlocksOnALogThatNobodyReads) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  {
    LineWriter output(ends[1]);
    RunToTheEnd(kFlood, &output);
    EXPECT_GT(output.Close(absl::ZeroDuration()), 100'000);
  }
  close(ends[0]);  // the writer's thread gives up, and leaves the other end alone
}

TEST_F(ProgramTest, NeverEndsByALogThatIsFull) {
  const int full = open("/dev/full", O_WRONLY);
  LineWriter output(full);
  RunToTheEnd(kFlood, &output);
  EXPECT_GT(output.Close(kPatience), 100'000);
}

TEST_F(ProgramTest, StartsAgainWhereItEndsAndPassesOnItsLastWords) {
  const std::string log = parent_ + "/log";
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT, 0600);
  LineWriter output(fd);
  RunToTheEnd(absl::StrCat("cd ", parent_,
                           "; echo life >>lives; printf 'line\\nlast'; "
                           "[ $(wc -l <lives) = 3 ] || kill -KILL $$"),
              &output);
  EXPECT_EQ(output.Close(kPatience), 0);
  EXPECT_EQ(ReadFileOrEmpty(log),
            "job 1: line\njob 1: last\njob 1: line\njob 1: last\njob 1: line\njob 1: last\n");
}

TEST_F(ProgramTest, PassesOnLinesOfJsonAsTheyAre) {
  const std::string log = parent_ + "/log";
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT, 0600);
  LineWriter output(fd);
  RunToTheEnd(R"(printf '{"time":"x"}\n{ no\n')", &output);
  EXPECT_EQ(output.Close(kPatience), 0);
  EXPECT_EQ(ReadFileOrEmpty(log), "{\"time\":\"x\"}\njob 1: { no\n");
}

TEST_F(ProgramTest, IsOverOnlyWhenNothingOfItIsLeft) {
  LineWriter output(STDOUT_FILENO);
  const std::string file = parent_ + "/pid";
  RunToTheEnd(absl::StrCat("setsid bash -c 'echo $$ >", file,
                           "; while :; do sleep 0.02; done' & until [ -s ", file,
                           " ]; do sleep 0.02; done"),
              &output);
  pid_t pid = 0;
  ASSERT_TRUE(std::ifstream(file) >> pid);
  EXPECT_TRUE(IsGone(pid));
}

}  // namespace
}  // namespace skein::supervisor

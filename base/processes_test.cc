#include "base/processes.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// One that does nothing, with these entries in its environment.
pid_t Start(std::vector<std::string> environment) {
  std::vector<char*> entries;
  for (std::string& entry : environment) entries.push_back(entry.data());
  entries.push_back(nullptr);
  std::string name = "sleep", seconds = "600";
  char* const argv[] = {name.data(), seconds.data(), nullptr};
  const pid_t pid = vfork();  // over when the program runs
  if (pid == 0) {
    execve("/bin/sleep", argv, entries.data());
    _exit(127);
  }
  // The kernel shows the environment a moment after the program has taken its parent's place.
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (std::ifstream(absl::StrCat("/proc/", pid, "/environ")).peek() == EOF) {
    if (absl::Now() > deadline) std::abort();
    absl::SleepFor(absl::Microseconds(100));
  }
  return pid;
}

int EndOf(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(ProcessesTest, ThoseOfAnotherStartAreKilledAlsoWhereTheyAreStopped) {
  const std::string slot = absl::StrCat("SLOT=", getpid());
  const pid_t old = Start({"A=b", slot, "ID=1"});
  const pid_t stopped = Start({slot, "ID=2"});
  const pid_t mine = Start({slot, "ID=3"});
  const pid_t others = Start({"ID=1", absl::StrCat("X", slot), slot + "0"});
  kill(stopped, SIGSTOP);
  ASSERT_THAT(KillThoseWith(slot, "ID=3"), UnorderedElementsAre(old, stopped));
  EXPECT_EQ(EndOf(old), SIGKILL);
  EXPECT_EQ(EndOf(stopped), SIGKILL);
  for (const pid_t pid : {mine, others}) {
    EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), 0);
    kill(pid, SIGTERM);
    EXPECT_EQ(EndOf(pid), SIGTERM);
  }
}

TEST(ProcessesTest, ASparedOneIsLeftOutWithWhatItStarted) {
  const std::string mark = absl::StrCat("MARK=", getpid());
  const pid_t one = Start({mark});
  const pid_t other = Start({mark});
  EXPECT_THAT(FindStarted(getpid(), ""), UnorderedElementsAre(getpid(), one, other));
  EXPECT_THAT(FindStarted(getpid(), "", {one}), UnorderedElementsAre(getpid(), other));
  EXPECT_THAT(FindStarted(0, mark, {other}), UnorderedElementsAre(one));
  EXPECT_THAT(FindStarted(getpid(), "", {getpid()}), IsEmpty());
  for (const pid_t pid : {one, other}) {
    kill(pid, SIGKILL);
    EXPECT_EQ(EndOf(pid), SIGKILL);
  }
}

}  // namespace
}  // namespace skein

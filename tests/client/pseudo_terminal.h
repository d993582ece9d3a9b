// The skein program at a terminal of a test's own.
#pragma once

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace skein::client {

class PseudoTerminal {
 public:
  // Of 80 columns and 24 rows.
  explicit PseudoTerminal(std::vector<std::string> arguments) {
    winsize size = {.ws_row = 24, .ws_col = 80};
    pid_ = forkpty(&fd_, nullptr, nullptr, &size);
    if (pid_ != 0) return;
    std::vector<char*> argv = {const_cast<char*>("skein")};
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv("client/skein", argv.data());
    _exit(127);
  }
  ~PseudoTerminal() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    close(fd_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;

  pid_t pid() const { return pid_; }
  void Type(const std::string& text) {
    EXPECT_EQ(write(fd_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // The program hears of it.
  void Resize(int columns, int rows) {
    const winsize size = {.ws_row = static_cast<unsigned short>(rows),
                          .ws_col = static_cast<unsigned short>(columns)};
    EXPECT_EQ(ioctl(fd_, TIOCSWINSZ, &size), 0);
  }
  // Whether keys are shown as they are typed, and lines are edited.
  bool EditsLines() const {
    termios state = {};
    EXPECT_EQ(tcgetattr(fd_, &state), 0);
    return (state.c_lflag & ECHO) != 0 && (state.c_lflag & ICANON) != 0;
  }
  // Within 20 s.
  bool Shows(const std::string& text) {
    const absl::Time until = absl::Now() + absl::Seconds(20);
    while (shown_.find(text) == std::string::npos) {
      if (absl::Now() > until || !ReadSome()) return false;
    }
    return true;
  }
  // All so far.
  const std::string& shown() const { return shown_; }
  void Forget() { shown_.clear(); }
  // The exit status, once it has ended; -1: by a signal. What it still writes is read.
  int Wait() {
    while (ReadSome()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  bool ReadSome() {
    pollfd polled = {.fd = fd_, .events = POLLIN};
    char bytes[4096];
    if (poll(&polled, 1, 20'000) <= 0) return false;
    const ssize_t count = read(fd_, bytes, sizeof(bytes));
    if (count <= 0) return false;
    shown_.append(bytes, static_cast<size_t>(count));
    return true;
  }

  int fd_ = -1;
  pid_t pid_ = -1;
  std::string shown_;
};

}  // namespace skein::client

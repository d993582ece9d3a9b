// A terminal that a program has to itself, and what wakes it there.
#pragma once

#include <signal.h>
#include <termios.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace skein::client {

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};
// Of standard output; the default where that does not know.
TerminalSize SizeOfTerminal();

// Takes standard output, which is a terminal, to its other page, without a cursor, and standard
// input, where that is one, key by key. When it goes, all is as before. Make it before other
// threads start: they inherit the blocked signals. Owned by one thread.
class Terminal {
 public:
  enum class Event { kNone, kQuit, kResized, kWoken };

  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;

  // Overwrites what is shown, without a flicker.
  void Show(const std::vector<std::string>& lines) const;
  // Waits for a key that quits (q, Ctrl-C, Ctrl-D), a signal that ends the program, a new size, or
  // `wake_fd` to be readable; nothing within `most`.
  Event Wait(int wake_fd, absl::Duration most);

 private:
  bool ReadsQuit();

  sigset_t signals_;
  sigset_t before_;
  int signal_fd_ = -1;
  std::optional<termios> input_;  // as it was
  bool listens_ = false;          // to keys
};

}  // namespace skein::client

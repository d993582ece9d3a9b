#include "client/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <ctime>
#include <iterator>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace skein::client {
namespace {

// Control sequences of ECMA-48, and xterm's for the other page (1049), the cursor (25) and lines
// that do not wrap (7).
constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr char kLeave[] = "\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H";
constexpr char kClearLine[] = "\x1b[K";
constexpr char kClearBelow[] = "\x1b[J";

// What a terminal that has gone does not take is lost.
void Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (written <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

TerminalSize SizeOfTerminal() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {};
  }
  return {size.ws_col, size.ws_row};
}

Terminal::Terminal() {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH}) {
    sigaddset(&signals_, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  signal_fd_ = signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK);
  termios input;
  if (tcgetattr(STDIN_FILENO, &input) == 0) {
    input_ = input;
    // Ctrl-C and Ctrl-Z are keys: nobody stops the program on the other page.
    input.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
    tcsetattr(STDIN_FILENO, TCSANOW, &input);
    listens_ = true;
  }
  Write(kEnter);
}

Terminal::~Terminal() {
  Write(kLeave);
  if (input_.has_value()) tcsetattr(STDIN_FILENO, TCSANOW, &*input_);
  close(signal_fd_);
  // A signal that asked for the end and was heard must not come again.
  const timespec now = {};
  while (sigtimedwait(&signals_, nullptr, &now) > 0) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Terminal::Show(const std::vector<std::string>& lines) const {
  std::string bytes(kHome);
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StrAppend(&bytes, i == 0 ? "" : "\r\n", lines[i], kClearLine);
  }
  absl::StrAppend(&bytes, kClearBelow);
  Write(bytes);
}

bool Terminal::ReadsQuit() {
  std::array<char, 64> keys;
  const ssize_t count = read(STDIN_FILENO, keys.data(), keys.size());
  if (count <= 0) listens_ = false;  // the terminal has gone, which a signal tells
  return std::any_of(keys.begin(), keys.begin() + std::max<ssize_t>(count, 0), [](char key) {
    return key == 'q' || key == 'Q' || key == '\x03' || key == '\x04';
  });
}

Terminal::Event Terminal::Wait(int wake_fd, absl::Duration most) {
  pollfd polled[] = {{.fd = signal_fd_, .events = POLLIN},
                     {.fd = wake_fd, .events = POLLIN},
                     {.fd = listens_ ? STDIN_FILENO : -1, .events = POLLIN}};
  const auto patience = static_cast<int>(absl::ToInt64Milliseconds(
      absl::Ceil(std::clamp(most, absl::ZeroDuration(), absl::Hours(1)), absl::Milliseconds(1))));
  if (poll(polled, std::size(polled), patience) <= 0) return Event::kNone;
  signalfd_siginfo signal;
  if (polled[0].revents != 0 && read(signal_fd_, &signal, sizeof(signal)) == sizeof(signal)) {
    return signal.ssi_signo == SIGWINCH ? Event::kResized : Event::kQuit;
  }
  if (polled[2].revents != 0 && ReadsQuit()) return Event::kQuit;
  return polled[1].revents != 0 ? Event::kWoken : Event::kNone;
}

}  // namespace skein::client

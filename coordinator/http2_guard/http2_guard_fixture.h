// A guard for tests, its clients, and the ends of connections that gRPC would get.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/test_util.h"
#include "coordinator/http2_guard/hand_made_frames.h"
#include "coordinator/http2_guard/http2_guard.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {

inline constexpr size_t kLarge = 8 << 20;
inline const std::string kBegun = Frame(FrameKind::kHeaders, kEndHeaders, 1, "x");

// One end of a connection. Waits for at most 20 s.
class End {
 public:
  explicit End(int fd) : fd_(fd) {
    const timeval patience = {.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  }
  ~End() { Close(); }
  End(const End&) = delete;

  int fd() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  bool Send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // As much as comes up to the end; or to `size`.
  std::string Read(size_t size = SIZE_MAX) const {
    std::string read;
    std::vector<char> part(64 << 10);
    while (read.size() < size) {
      const ssize_t got = recv(fd_, part.data(), std::min(part.size(), size - read.size()), 0);
      EXPECT_FALSE(got < 0 && errno == EAGAIN) << "nothing comes, and no end";
      if (got <= 0) break;
      read.append(part.data(), static_cast<size_t>(got));
    }
    return read;
  }
  // What a socket takes whose other end is not read, with the buffers behind it.
  size_t SendUntilNothingGoes() const {
    const std::string part(64 << 10, '\0');
    size_t sent = 0;
    for (int pauses = 0; pauses < 5 && sent < (size_t{256} << 20);) {
      const ssize_t now = send(fd_, part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (now > 0) {
        sent += static_cast<size_t>(now);
        pauses = 0;
      } else {
        ++pauses;
        absl::SleepFor(absl::Milliseconds(50));
      }
    }
    return sent;
  }

 private:
  int fd_;
};

// Frames of DATA, of so many bytes or a little more.
inline std::string Data(size_t size) {
  std::string frames;
  for (size_t i = 0; frames.size() < size; ++i) {
    std::string payload(10000 + i % 977, static_cast<char>('a' + i % 26));
    frames += Frame(FrameKind::kData, 0, 1, payload);
  }
  return frames;
}

class Http2GuardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    ASSERT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&any), sizeof(any)), 0);
    ASSERT_EQ(listen(listener_, 1024), 0);
    socklen_t size = sizeof(address_);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address_), &size);
  }
  void TearDown() override {
    guard_.reset();
    close(listener_);
  }

  void Start(Http2Guard::Options options = {}) {
    options.on_connection = [this](int fd) {
      MutexLock lock(&mutex_);
      given_.push_back(std::make_unique<End>(fd));
    };
    options.on_refusal = [this](const std::string& /*reason*/, const std::string& line) {
      MutexLock lock(&mutex_);
      lines_ += line + "\n";
    };
    SKEIN_ASSERT_OK_AND_ASSIGN(guard_, Http2Guard::Start(std::move(options)));
  }
  std::string listen_address() const {
    return absl::StrCat("127.0.0.1:", ntohs(address_.sin_port));
  }
  void Accept() { guard_->Add(accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK)); }
  std::unique_ptr<End> Connect() {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address_), sizeof(address_)), 0);
    Accept();
    return std::make_unique<End>(fd);
  }
  // gRPC's end of the connection that was given to it first.
  std::unique_ptr<End> Given() {
    std::unique_ptr<End> end;
    EXPECT_TRUE(WaitFor([&] {
      MutexLock lock(&mutex_);
      if (given_.empty()) return false;
      end = std::move(given_.front());
      given_.pop_front();
      return true;
    }));
    return end;
  }
  std::unique_ptr<End> Greeted(const End& client) {
    EXPECT_TRUE(client.Send(Hello()));
    std::unique_ptr<End> server = Given();
    EXPECT_EQ(server->Read(Hello().size()), Hello());
    return server;
  }
  std::string lines() {
    MutexLock lock(&mutex_);
    return lines_;
  }
  template <typename Predicate>
  static bool WaitFor(const Predicate& predicate) {
    const absl::Time until = absl::Now() + absl::Seconds(20);
    while (!predicate()) {
      if (absl::Now() > until) return false;
      absl::SleepFor(absl::Milliseconds(2));
    }
    return true;
  }

  int listener_ = -1;
  sockaddr_in address_ = {};
  Mutex mutex_;
  std::deque<std::unique_ptr<End>> given_ ABSL_GUARDED_BY(mutex_);
  std::string lines_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Http2Guard> guard_;
};

}  // namespace skein::coordinator

#include "supervisor/connect_probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <future>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace skein::supervisor {
namespace {

constexpr absl::Duration kLong = absl::Seconds(20);

class ListenerTest : public ::testing::Test {
 protected:
  ListenerTest() {
    sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = {.host = "127.0.0.1", .port = ntohs(address.sin_port)};
  }
  ~ListenerTest() override { close(fd_); }

  const int fd_ = socket(AF_INET, SOCK_STREAM, 0);
  HostPort address_;
};

TEST_F(ListenerTest, NobodyListens) {
  EXPECT_EQ(TakesConnections(address_, kLong).code(), absl::StatusCode::kUnavailable)
      << TakesConnections(address_, kLong);
}

// Stopped, or out of descriptors: the kernel alone takes the connection.
TEST_F(ListenerTest, NobodyAccepts) {
  ASSERT_EQ(listen(fd_, 5), 0);
  EXPECT_EQ(TakesConnections(address_, absl::Milliseconds(50)).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ListenerTest, TheFirstByteIsAnAnswer) {
  ASSERT_EQ(listen(fd_, 5), 0);
  std::jthread server([&] {
    const int accepted = accept(fd_, nullptr, nullptr);
    EXPECT_EQ(write(accepted, "x", 1), 1);
    char byte;
    EXPECT_LE(read(accepted, &byte, 1), 0);  // until the probe has gone
    close(accepted);
  });
  EXPECT_EQ(TakesConnections(address_, kLong), absl::OkStatus());
}

// A server that has too many connections still lives.
TEST_F(ListenerTest, ARefusalIsAnAnswer) {
  ASSERT_EQ(listen(fd_, 5), 0);
  std::jthread server([&] { close(accept(fd_, nullptr, nullptr)); });
  EXPECT_EQ(TakesConnections(address_, kLong), absl::OkStatus());
}

// As one with TLS, which waits for its client's first word.
TEST_F(ListenerTest, WhoWaitsForTheClientIsNotTakenForDead) {
  ASSERT_EQ(listen(fd_, 5), 0);
  std::jthread server([&] {
    const int accepted = accept(fd_, nullptr, nullptr);
    char byte;
    EXPECT_EQ(read(accepted, &byte, 1), 0);
    close(accepted);
  });
  EXPECT_EQ(TakesConnections(address_, kLong), absl::OkStatus());
}

TEST_F(ListenerTest, AsksAgainAndAgain) {
  std::array<std::promise<absl::Status>, 3> answers;
  size_t count = 0;
  const ConnectProbe probe(address_, absl::Milliseconds(10), [&](const absl::Status& status) {
    if (count < answers.size()) answers[count++].set_value(status);
  });
  for (auto& answer : answers) EXPECT_FALSE(answer.get_future().get().ok());
}

}  // namespace
}  // namespace skein::supervisor

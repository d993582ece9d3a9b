#include "parallel/comm/control/tcp_socket.h"

#include <sys/socket.h>

#include <thread>

#include "absl/time/clock.h"
#include "base/test_util.h"
#include "gtest/gtest.h"

namespace skein::comm {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

absl::Time Soon() { return absl::Now() + absl::Seconds(10); }

TEST(TcpSocket, TriesAddressesUntilOneAnswers) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Listener listener, Listen(4));
  // 192.0.2.1 is nobody's; "::1" may be missing on a host without IPv6.
  SKEIN_ASSERT_OK_AND_ASSIGN(const OwnedFd socket,
                             Connect({"no address", "127.0.0.1"}, listener.port, "hello", Soon()));
  SKEIN_ASSERT_OK_AND_ASSIGN(const Accepted accepted, Accept(listener, 5, Soon()));
  EXPECT_EQ(accepted.hello, "hello");
}

TEST(TcpSocket, TellsWhatItTried) {
  int port = 0;
  {
    SKEIN_ASSERT_OK_AND_ASSIGN(const Listener listener, Listen(1));
    port = listener.port;
  }
  EXPECT_THAT(Connect({"127.0.0.1", "bad"}, port, "", Soon()).status(),
              StatusIs(StatusCode::kUnavailable,
                       AllOf(HasSubstr("127.0.0.1: "), HasSubstr("refused"), HasSubstr("bad: "))));
}

TEST(TcpSocket, DropsAConnectionThatSaysNothing) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Listener listener, Listen(4));
  {
    SKEIN_ASSERT_OK_AND_ASSIGN(const OwnedFd stranger,
                               Connect({"127.0.0.1"}, listener.port, "he", Soon()));
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(const OwnedFd socket,
                             Connect({"127.0.0.1"}, listener.port, "hello", Soon()));
  SKEIN_ASSERT_OK_AND_ASSIGN(const Accepted accepted, Accept(listener, 5, Soon()));
  EXPECT_EQ(accepted.hello, "hello");
  EXPECT_THAT(Accept(listener, 5, absl::Now() + absl::Milliseconds(20)).status(),
              StatusIs(StatusCode::kDeadlineExceeded, testing::_));
}

TEST(TcpSocket, LoopbackIsTheLastAddress) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> addresses, HostAddresses());
  ASSERT_FALSE(addresses.empty());
  EXPECT_THAT(addresses.back(), testing::AnyOf("::1", testing::StartsWith("127.")));
}

}  // namespace
}  // namespace skein::comm

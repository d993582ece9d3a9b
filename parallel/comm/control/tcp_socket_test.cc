#include "parallel/comm/control/tcp_socket.h"

#include <sys/socket.h>

#include <atomic>
#include <future>
#include <random>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/port_range.h"
#include "base/status_macros.h"
#include "base/test_util.h"
#include "gtest/gtest.h"

namespace skein::comm {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

absl::Time Soon() { return absl::Now() + absl::Seconds(10); }

const std::string kKey(kSharedKeyBytes, 'k');

// The other end, once somebody has connected.
absl::StatusOr<SecureSocket> Serve(const Listener& listener, const std::string& key = kKey) {
  SecureSocket connection;
  while (connection.socket.get() < 0) {
    connection.socket = OwnedFd(accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK));
  }
  SKEIN_ASSIGN_OR_RETURN(connection.tls, SharedKeyTls::Server(key));
  while (true) {
    SKEIN_ASSIGN_OR_RETURN(const bool over, AdvanceHandshake(connection));
    if (over) return connection;
  }
}

TEST(TcpSocket, TriesAddressesUntilOneAnswers) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Listener listener, Listen(4));
  auto served = std::async(std::launch::async, [&] { return Serve(listener); });
  SKEIN_ASSERT_OK(Connect({"no address", "127.0.0.1"}, listener.port, kKey, "rank 3", Soon()));
  SKEIN_ASSERT_OK_AND_ASSIGN(const SecureSocket other, served.get());
  EXPECT_EQ(other.tls->identity(), "rank 3");
}

// Connections that are over hold up nobody.
TEST(TcpSocket, ListensAtPortsOfARange) {
  int first = 0;
  {
    SKEIN_ASSERT_OK_AND_ASSIGN(const Listener any, Listen(4));
    first = any.port;
    auto served = std::async(std::launch::async, [&] { return Serve(any); });
    SKEIN_ASSERT_OK_AND_ASSIGN(const SecureSocket client,
                               Connect({"127.0.0.1"}, first, kKey, "rank 3", Soon()));
    SKEIN_ASSERT_OK(served.get());  // this end closes first, and keeps the port
  }
  const PortRange one = {first, first};
  SKEIN_ASSERT_OK_AND_ASSIGN(const Listener listener, Listen(4, one));
  EXPECT_EQ(listener.port, first);
  EXPECT_THAT(Listen(4, one).status(),
              StatusIs(StatusCode::kUnavailable,
                       HasSubstr(absl::StrCat("all ports from ", first, " to ", first))));
  SKEIN_ASSERT_OK_AND_ASSIGN(const Listener next, Listen(4, PortRange{first, first + 20}));
  EXPECT_GT(next.port, first);
  EXPECT_LE(next.port, first + 20);
}

// Leaders of replicas begin at the same time, each with as many ports as there are leaders.
TEST(TcpSocket, WhoListensAtOnceGetsAPortEach) {
  PortRange two;
  const auto both_are_free = [&two] {
    const auto first = Listen(1, two), second = Listen(1, two);
    return first.ok() && second.ok();
  };
  std::minstd_rand random(std::random_device{}());
  do {
    two.first = 20000 + static_cast<int>(random() % 10000);
    two.last = two.first + 1;
  } while (!both_are_free());
  for (int round = 0; round < 3000; ++round) {
    std::atomic<int> absent = 2;  // a barrier would wake one after the other
    const auto listen = [&] {
      --absent;
      while (absent > 0) std::this_thread::yield();
      return Listen(1, two);
    };
    auto other = std::async(std::launch::async, listen);
    const absl::StatusOr<Listener> mine = listen(), theirs = other.get();
    SKEIN_ASSERT_OK(mine);
    SKEIN_ASSERT_OK(theirs);
    EXPECT_NE(mine->port, theirs->port);
  }
}

TEST(TcpSocket, TellsWhatItTried) {
  int port = 0;
  {
    SKEIN_ASSERT_OK_AND_ASSIGN(const Listener listener, Listen(1));
    port = listener.port;
  }
  EXPECT_THAT(Connect({"127.0.0.1", "bad"}, port, kKey, "", Soon()).status(),
              StatusIs(StatusCode::kUnavailable,
                       AllOf(HasSubstr("127.0.0.1: "), HasSubstr("refused"), HasSubstr("bad: "))));
}

// Another program may listen at that port of an address that two hosts have.
TEST(TcpSocket, WhoDoesNotKnowTheKeyIsNotTheOneWhoIsLookedFor) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Listener listener, Listen(4));
  auto served = std::async(std::launch::async,
                           [&] { return Serve(listener, std::string(kSharedKeyBytes, 'x')); });
  EXPECT_THAT(Connect({"127.0.0.1"}, listener.port, kKey, "rank 3", Soon()).status(),
              StatusIs(StatusCode::kUnavailable, HasSubstr("the TLS handshake failed")));
  EXPECT_THAT(served.get().status(), StatusIs(StatusCode::kPermissionDenied, testing::_));
}

TEST(TcpSocket, WhoSaysNothingIsGivenUp) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Listener listener, Listen(4));
  const absl::Time begin = absl::Now();
  EXPECT_THAT(Connect({"127.0.0.1"}, listener.port, kKey, "rank 3", begin + absl::Milliseconds(200))
                  .status(),
              StatusIs(StatusCode::kUnavailable, HasSubstr("no answer in time")));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
}

TEST(TcpSocket, LoopbackIsTheLastAddress) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> addresses, HostAddresses());
  ASSERT_FALSE(addresses.empty());
  EXPECT_THAT(addresses.back(), testing::AnyOf("::1", testing::StartsWith("127.")));
}

}  // namespace
}  // namespace skein::comm

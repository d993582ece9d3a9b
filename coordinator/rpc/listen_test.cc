// Tests where a coordinator listens.
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/host_port.h"
#include "base/test_util.h"
#include "coordinator/rpc/listener.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

socklen_t SizeOf(const sockaddr& address) {
  return address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

std::string Name(const sockaddr& address) {
  char name[NI_MAXHOST] = {};
  getnameinfo(&address, SizeOf(address), name, sizeof(name), nullptr, 0, NI_NUMERICHOST);
  return name;
}

// Connects to the port and returns errno; 0: the connection was taken.
int Connect(const sockaddr& address, int port) {
  sockaddr_storage to = {};
  std::memcpy(&to, &address, SizeOf(address));
  if (to.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(to).sin_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in6&>(to).sin6_port = htons(static_cast<uint16_t>(port));
  }
  const int fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int result = connect(fd, reinterpret_cast<const sockaddr*>(&to), SizeOf(address));
  const int error = result == 0 ? 0 : errno;
  close(fd);
  return error;
}

TEST(ListenTest, ByDefaultOnLoopbackOnly) {
  SKEIN_ASSERT_OK_AND_ASSIGN(HostPort address, ParseHostPort(Server::Options().listen));
  EXPECT_EQ(address.host, "127.0.0.1");
  address.port = 0;  // a free one
  Daemon::Options options = TestOptions();
  options.server.listen = address.ToString();
  TestCoordinator coordinator(std::move(options));
  SKEIN_ASSERT_OK_AND_ASSIGN(address, ParseHostPort(coordinator.address()));

  ifaddrs* all = nullptr;
  ASSERT_EQ(getifaddrs(&all), 0);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, &freeifaddrs);
  bool taken = false;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    const sockaddr* local = entry->ifa_addr;
    if (local == nullptr || (local->sa_family != AF_INET && local->sa_family != AF_INET6)) continue;
    const std::string name = Name(*local);
    const int error = Connect(*local, address.port);
    if (name == "127.0.0.1") {
      EXPECT_EQ(error, 0) << strerror(error);
      taken = error == 0;
    } else if ((entry->ifa_flags & IFF_UP) != 0) {
      EXPECT_NE(error, 0) << name;
    }
  }
  EXPECT_TRUE(taken);
}

TEST(ListenTest, APortInUseIsAnErrorThatNamesIt) {
  TestCoordinator coordinator;
  Daemon::Options options = TestOptions();
  options.server.listen = coordinator.address();
  Daemon second(std::move(options), &RealClock::Get());
  EXPECT_THAT(second.Start(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(coordinator.address()), HasSubstr("the port is in use"))));
}

TEST(ListenTest, AnAddressIsCheckedWithoutBeingTaken) {
  std::string address;
  {
    TestCoordinator coordinator;
    address = coordinator.address();
    SKEIN_ASSERT_OK_AND_ASSIGN(const HostPort taken, ParseHostPort(address));
    EXPECT_THAT(CheckListenAddress(taken),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("the port is in use")));
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(const HostPort free, ParseHostPort(address));
  SKEIN_EXPECT_OK(CheckListenAddress(free));
  SKEIN_EXPECT_OK(CheckListenAddress(free));  // the first check left it free
  SKEIN_EXPECT_OK(CheckListenAddress({"localhost", 0}));
  EXPECT_THAT(CheckListenAddress({"192.0.2.1", 1}),  // of no machine (RFC 5737)
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("192.0.2.1:1")));
}

// A token's small write must not wait for the acknowledgement of the one before.
TEST(ListenTest, ConnectionsSendAtOnce) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto listener, Listener::Open({"127.0.0.1", 0}));
  std::promise<int> taken;
  listener->Start(1024, [&](int fd) { taken.set_value(fd); });
  sockaddr_in loopback = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  ASSERT_EQ(Connect(reinterpret_cast<const sockaddr&>(loopback), listener->address().port), 0);
  const int fd = taken.get_future().get();
  int no_delay = 0;
  socklen_t size = sizeof(no_delay);
  EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, &size), 0);
  EXPECT_EQ(no_delay, 1);
  close(fd);
  listener->Stop();
}

// The lowest free descriptor counts what is open here, beside what the test itself opens.
int LowestFreeDescriptor() {
  const int fd = dup(STDERR_FILENO);
  close(fd);
  return fd;
}

// Tells whether the server keeps a connection that was made.
bool IsKept(int fd) {
  // An empty frame of SETTINGS behind the preface.
  constexpr char kHello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
  char byte = 0;
  // A server answers with its settings; one that refuses closes.
  return send(fd, kHello, sizeof(kHello), MSG_NOSIGNAL) == sizeof(kHello) &&
         recv(fd, &byte, 1, 0) == 1;
}

TEST(ListenTest, BeyondTheLimitConnectionsAreRefusedAndTheOthersGoOn) {
  Daemon::Options options = TestOptions();
  // The limit leaves room for the server's own threads and files, and for some connections, which
  // have both ends in this process.
  options.server.max_descriptors = LowestFreeDescriptor() + 100;
  TestCoordinator coordinator(std::move(options));
  ASSERT_EQ(coordinator.Status().jobs_size(), 0);
  SKEIN_ASSERT_OK_AND_ASSIGN(const HostPort address, ParseHostPort(coordinator.address()));
  sockaddr_in to = {.sin_family = AF_INET,
                    .sin_port = htons(static_cast<uint16_t>(address.port)),
                    .sin_addr = {htonl(INADDR_LOOPBACK)}};
  std::vector<int> sockets;
  bool refused = false;
  while (!refused && sockets.size() < 200) {
    sockets.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(sockets.back(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    refused = !IsKept(sockets.back());
  }
  EXPECT_TRUE(refused);
  EXPECT_GT(sockets.size(), 10u);
  // The connection that is there goes on, and new ones are taken when there is room again.
  EXPECT_EQ(coordinator.Status().jobs_size(), 0);
  for (const int fd : sockets) close(fd);
  EXPECT_TRUE(TestCoordinator::WaitFor([&] {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool kept =
        connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0 && IsKept(fd);
    close(fd);
    return kept;
  }));
}

TEST(ListenTest, AReserveOfDescriptorsStaysFree) {
  EXPECT_EQ(MaxDescriptors(1024), 1024 - 64);
  EXPECT_EQ(MaxDescriptors(100), 50);
  EXPECT_EQ(MaxDescriptors(int64_t{1} << 40), (1 << 20) - 64);
}

TEST(ListenTest, AnAddressThatIsNoneIsQuoted) {
  Daemon::Options options = TestOptions();
  options.server.listen = "localhost";
  Daemon daemon(std::move(options), &RealClock::Get());
  EXPECT_THAT(daemon.Start(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'localhost'")));
}

}  // namespace
}  // namespace skein::coordinator

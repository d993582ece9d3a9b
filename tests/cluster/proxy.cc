#include "tests/cluster/proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "gtest/gtest.h"

namespace skein::testing {
namespace {

constexpr int kPollMs = 50;  // how soon the end is noticed

sockaddr_in Loopback(int port) {
  return {.sin_family = AF_INET,
          .sin_port = htons(static_cast<uint16_t>(port)),
          .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

bool Readable(int fd) {
  pollfd wait = {.fd = fd, .events = POLLIN};
  return poll(&wait, 1, kPollMs) > 0;
}

}  // namespace

Proxy::Proxy(const std::string& server) : server_(server) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(listener_, 16), 0);
  EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
  address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  accept_ = std::thread([this] { Accept(); });
}

Proxy::~Proxy() {
  ended_ = true;
  accept_.join();
  MutexLock lock(&mutex_);
  for (std::thread& pump : pumps_) pump.join();
  for (const int socket : sockets_) close(socket);
  close(listener_);
}

void Proxy::Accept() {
  const int port = ParseHostPort(server_)->port;
  while (!ended_) {
    if (!Readable(listener_)) continue;
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Loopback(port);
    const bool connected =
        connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    MutexLock lock(&mutex_);
    sockets_.insert(sockets_.end(), {client, server});
    if (!connected) {
      shutdown(client, SHUT_RDWR);
      continue;
    }
    pumps_.emplace_back([this, client, server] { Pump(client, server, /*can_be_held=*/false); });
    pumps_.emplace_back([this, client, server] { Pump(server, client, /*can_be_held=*/true); });
  }
}

void Proxy::Pump(int from, int to, bool can_be_held) {
  std::array<char, 65536> bytes;
  while (!ended_) {
    if (can_be_held && held_) {
      poll(nullptr, 0, kPollMs);
      continue;
    }
    if (!Readable(from)) continue;
    if (can_be_held && held_) continue;
    const ssize_t count = read(from, bytes.data(), bytes.size());
    if (count <= 0) break;
    for (ssize_t sent = 0; sent < count;) {
      const ssize_t part = send(to, bytes.data() + sent, count - sent, MSG_NOSIGNAL);
      if (part <= 0) break;
      sent += part;
    }
  }
  shutdown(from, SHUT_RDWR);
  shutdown(to, SHUT_RDWR);
}

}  // namespace skein::testing

// Links over a proxy that hears, and may change, what goes over the wire.
#include "parallel/comm/control/tcp_link.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/control/acceptor.h"

namespace skein::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kKey(kSharedKeyBytes, 'k');

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

// Of one connection.
class Proxy {
 public:
  explicit Proxy(int to) : listener_(*Listen(1)), thread_([this, to] { Run(to); }) {}
  ~Proxy() {
    if (thread_.joinable()) End();
  }
  int port() const { return listener_.port; }
  // From now on the last byte of what is carried changes.
  void Change() { changes_ = true; }
  // Hangs up; all that went over.
  std::string End() {
    ending_ = true;
    thread_.join();
    return heard_;
  }

 private:
  void Run(int to) {
    pollfd waited = {listener_.socket.get(), POLLIN, 0};
    poll(&waited, 1, 20'000);
    const OwnedFd client(accept4(listener_.socket.get(), nullptr, nullptr, 0));
    const OwnedFd server(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(to));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    while (!ending_) {
      std::array<pollfd, 2> both = {{{client.get(), POLLIN, 0}, {server.get(), POLLIN, 0}}};
      poll(both.data(), both.size(), 20);
      for (int i = 0; i < 2; ++i) {
        if (both[i].revents == 0) continue;
        std::vector<char> bytes(64 << 10);
        const ssize_t got = recv(both[i].fd, bytes.data(), bytes.size(), 0);
        if (got <= 0) return;  // both hear it
        heard_.append(bytes.data(), got);
        if (changes_) bytes[got - 1] ^= 1;
        send(both[1 - i].fd, bytes.data(), got, MSG_NOSIGNAL);
      }
    }
  }

  const Listener listener_;
  std::atomic<bool> ending_ = false;
  std::atomic<bool> changes_ = false;
  std::string heard_;  // the thread's
  std::thread thread_;
};

class TcpLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKEIN_ASSERT_OK_AND_ASSIGN(auto acceptor,
                               Acceptor::Start({.key = kKey, .identities = {"rank 1"}}));
    proxy_ = std::make_unique<Proxy>(acceptor->port());
    SKEIN_ASSERT_OK_AND_ASSIGN(SecureSocket near,
                               Connect({"127.0.0.1"}, proxy_->port(), kKey, "rank 1", Soon()));
    SKEIN_ASSERT_OK_AND_ASSIGN(auto taken, acceptor->Take({"rank 1"}, Soon()));
    SKEIN_ASSERT_OK_AND_ASSIGN(follower_, Start(std::move(near), "rank 0 on host a"));
    SKEIN_ASSERT_OK_AND_ASSIGN(leader_, Start(std::move(taken.at("rank 1")), "rank 1 on host b"));
  }
  absl::StatusOr<std::unique_ptr<TcpLinkSet>> Start(SecureSocket connection, std::string name) {
    std::vector<TcpLinkSet::Peer> peers;
    peers.push_back({std::move(connection), std::move(name)});
    return TcpLinkSet::Start(std::move(peers), bell_, absl::Seconds(4));
  }
  static void Write(TcpLinkSet& from, std::string_view text) {
    for (const absl::Time until = Soon(); !text.empty() && absl::Now() < until;) {
      SKEIN_ASSERT_OK_AND_ASSIGN(const size_t taken,
                                 from.link(0).TryWrite(text.substr(0, 1), text.substr(1)));
      text.remove_prefix(taken);
    }
    EXPECT_TRUE(text.empty());
  }
  // So many bytes, or what came before an error.
  static absl::StatusOr<std::string> Read(TcpLinkSet& at, size_t size) {
    std::string text;
    for (const absl::Time until = Soon(); text.size() < size && absl::Now() < until;) {
      std::vector<char> bytes(1 << 20);
      const absl::StatusOr<size_t> got = at.link(0).TryRead(bytes.data(), bytes.size());
      if (!got.ok()) return got.status();
      text.append(bytes.data(), *got);
    }
    return text;
  }

  Bell bell_;
  std::unique_ptr<Proxy> proxy_;
  std::unique_ptr<TcpLinkSet> leader_, follower_;
};

TEST_F(TcpLinkTest, WhoListensReadsNoPrompt) {
  std::string order;
  while (order.size() < 300'000) order += "the tokens of a prompt; ";
  for (TcpLinkSet* const from : {leader_.get(), follower_.get()}) {
    TcpLinkSet& to = from == leader_.get() ? *follower_ : *leader_;
    Write(*from, order);
    SKEIN_ASSERT_OK_AND_ASSIGN(const std::string got, Read(to, order.size()));
    EXPECT_TRUE(got == order);
  }
  const std::string heard = proxy_->End();
  EXPECT_GT(heard.size(), 2 * order.size());
  EXPECT_THAT(heard, AllOf(Not(HasSubstr("prompt")), HasSubstr("rank 1")));
}

TEST_F(TcpLinkTest, WhoChangesAByteEndsTheLink) {
  Write(*leader_, "a first order");
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::string first, Read(*follower_, 13));
  EXPECT_EQ(first, "a first order");
  proxy_->Change();
  Write(*leader_, "a second order");
  EXPECT_THAT(Read(*follower_, 14).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("rank 0 on host a is gone: "), HasSubstr("TLS: "))));
}

// The first order may come in one piece with the end of the handshake.
TEST(TcpLinkStartTest, WhatCameWithTheHandshakeIsRead) {
  SKEIN_ASSERT_OK_AND_ASSIGN(auto acceptor,
                             Acceptor::Start({.key = kKey, .identities = {"rank 1"}}));
  const OwnedFd near(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(acceptor->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(near.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tls, SharedKeyTls::Client(kKey, "rank 1"));
  bool over = false;
  while (true) {
    SKEIN_ASSERT_OK_AND_ASSIGN(over, tls->Handshake());
    if (over) break;
    const std::string out = tls->TakeOutgoing();
    ASSERT_EQ(send(near.get(), out.data(), out.size(), 0), static_cast<ssize_t>(out.size()));
    char bytes[4096];
    const ssize_t got = recv(near.get(), bytes, sizeof(bytes), 0);
    ASSERT_GT(got, 0);
    tls->Feed({bytes, static_cast<size_t>(got)});
  }
  SKEIN_ASSERT_OK(tls->Seal("an early word"));
  const std::string out = tls->TakeOutgoing();
  ASSERT_EQ(send(near.get(), out.data(), out.size(), 0), static_cast<ssize_t>(out.size()));
  SKEIN_ASSERT_OK_AND_ASSIGN(auto taken, acceptor->Take({"rank 1"}, Soon()));
  Bell bell;
  std::vector<TcpLinkSet::Peer> peers;
  peers.push_back({std::move(taken.at("rank 1")), "rank 1 on host b"});
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto link,
                             TcpLinkSet::Start(std::move(peers), bell, absl::Seconds(4)));
  std::string text(100, '\0');
  size_t size = 0;
  for (const absl::Time until = Soon(); size == 0 && absl::Now() < until;) {
    SKEIN_ASSERT_OK_AND_ASSIGN(size, link->link(0).TryRead(text.data(), text.size()));
  }
  EXPECT_EQ(text.substr(0, size), "an early word");
}

}  // namespace
}  // namespace skein::comm

// The guard between clients' sockets and gRPC's, whose part a test plays.
#include "coordinator/http2_guard/http2_guard.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/mutex.h"
#include "base/test_util.h"
#include "base/tls/certificate_for_tests.h"
#include "coordinator/gateway/tls_for_tests.h"
#include "coordinator/http2_guard/hand_made_frames.h"
#include "coordinator/http2_guard/peer_name.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr size_t kLarge = 8 << 20;
const std::string kBegun = Frame(FrameKind::kHeaders, kEndHeaders, 1, "x");

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

std::string Data(size_t size) {
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

TEST_F(Http2GuardTest, MebibytesGoBothWaysAtOnce) {
  Start();
  const auto client = Connect();
  const auto server = Greeted(*client);
  const std::string up = Data(kLarge);
  const std::string down = Data(kLarge + 12345);
  std::thread upward([&] { EXPECT_TRUE(client->Send(up)); });
  std::thread downward([&] { EXPECT_TRUE(server->Send(down)); });
  std::string got;
  std::thread reader([&] { got = server->Read(up.size()); });
  EXPECT_EQ(client->Read(down.size()) == down, true);
  for (std::thread* thread : {&upward, &downward, &reader}) thread->join();
  EXPECT_EQ(got == up, true);
}

TEST_F(Http2GuardTest, TheClientsAddressGoesAlong) {
  Start();
  const auto client = Connect();
  const auto server = Greeted(*client);
  sockaddr_un name = {};
  socklen_t size = sizeof(name);
  ASSERT_EQ(getpeername(server->fd(), reinterpret_cast<sockaddr*>(&name), &size), 0);
  const std::string peer(name.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1);
  sockaddr_in own = {};
  size = sizeof(own);
  getsockname(client->fd(), reinterpret_cast<sockaddr*>(&own), &size);
  EXPECT_EQ(AddressIn("unix-abstract:" + peer),
            absl::StrCat("ipv4:127.0.0.1:", ntohs(own.sin_port)));
  EXPECT_EQ(AddressIn("ipv4:10.0.0.7:80"), "ipv4:10.0.0.7:80");
  EXPECT_EQ(AddressIn("unix:/tmp/skein-1/ipv4:x"), "unix:/tmp/skein-1/ipv4:x");
}

TEST_F(Http2GuardTest, WhatOneEndDoesNotReadIsNotReadFromTheOther) {
  Start();
  const auto client = Connect();
  const auto server = Greeted(*client);
  // A frame of this length is never whole, and passes as it comes.
  ASSERT_TRUE(
      client->Send(Frame(FrameKind::kData, 0, 1, std::string(0xffffff, '\0')).substr(0, 9)));
  const size_t up = client->SendUntilNothingGoes();
  ASSERT_TRUE(
      server->Send(Frame(FrameKind::kData, 0, 1, std::string(0xffffff, '\0')).substr(0, 9)));
  const size_t down = server->SendUntilNothingGoes();
  EXPECT_LT(up, size_t{32} << 20);
  EXPECT_LT(down, size_t{32} << 20);
  EXPECT_EQ(server->Read(9 + up).size(), 9 + up);
  EXPECT_EQ(client->Read(9 + down).size(), 9 + down);
}

TEST_F(Http2GuardTest, UpdatesOfWindowsWaitForAMoment) {
  Start();
  const auto client = Connect();
  const auto server = Greeted(*client);
  const std::string update = Frame(FrameKind::kWindowUpdate, 0, 0, std::string("\0\0\0\1", 4));
  for (int i = 0; i < 3; ++i) {
    const absl::Time begin = absl::Now();
    ASSERT_TRUE(client->Send(update));
    ASSERT_TRUE(server->Send(update));
    EXPECT_EQ(server->Read(update.size()), update);
    EXPECT_EQ(client->Read(update.size()), update);
    EXPECT_GE(absl::Now() - begin, absl::Milliseconds(19));
  }
}

TEST_F(Http2GuardTest, AClientThatSaysNoMoreStillReads) {
  Start();
  const auto client = Connect();
  const auto server = Greeted(*client);
  ASSERT_TRUE(client->Send(kBegun));
  shutdown(client->fd(), SHUT_WR);
  EXPECT_EQ(server->Read(), kBegun);
  const std::string answer = Data(1 << 20);
  ASSERT_TRUE(server->Send(answer));
  server->Close();
  EXPECT_EQ(client->Read() == answer, true);
}

TEST_F(Http2GuardTest, AClientThatIsGoneIsGoneForGrpc) {
  Start();
  auto client = Connect();
  const auto server = Greeted(*client);
  const linger reset = {.l_onoff = 1, .l_linger = 0};
  setsockopt(client->fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  client.reset();
  EXPECT_EQ(server->Read(), "");
}

TEST_F(Http2GuardTest, WhatGrpcSaidLastArrives) {
  Start();
  const auto client = Connect();
  auto server = Greeted(*client);
  const std::string last = Data(3 << 20);
  std::thread sender([&] {
    EXPECT_TRUE(server->Send(last));
    server.reset();
  });
  absl::SleepFor(absl::Milliseconds(100));  // buffers are full by then
  EXPECT_EQ(client->Read() == last, true);
  sender.join();
}

TEST_F(Http2GuardTest, ItArrivesAlsoWhereTheClientReadsItLater) {
  Start();
  const auto client = Connect();
  auto server = Greeted(*client);
  ASSERT_TRUE(
      server->Send(Frame(FrameKind::kData, 0, 1, std::string(0xffffff, '\0')).substr(0, 9)));
  const size_t sent = server->SendUntilNothingGoes();
  server.reset();
  absl::SleepFor(absl::Milliseconds(200));
  const absl::Time begin = absl::Now();
  EXPECT_EQ(client->Read().size(), 9 + sent);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(4));  // it ends when all is read, not by a deadline
}

TEST_F(Http2GuardTest, WhoBreaksTheRulesIsCutOffAndTold) {
  Start();
  const auto client = Connect();
  const auto server = Greeted(*client);
  ASSERT_TRUE(client->Send(kBegun));
  EXPECT_EQ(server->Read(kBegun.size()), kBegun);
  ASSERT_TRUE(client->Send(Frame(FrameKind::kHeaders, 0, 3, std::string(40000, 'x'))));
  EXPECT_EQ(client->Read(17), Frame(FrameKind::kGoaway, 0, 0, std::string("\0\0\0\1\0\0\0\xb", 8)));
  EXPECT_EQ(client->Read(), "");
  EXPECT_EQ(server->Read(), "");  // nothing of it came
  EXPECT_THAT(lines(), AllOf(StartsWith("a client was cut off: it sent a header block that is too "
                                        "long (from 127.0.0.1:"),
                             EndsWith(")\n")));
}

TEST_F(Http2GuardTest, OneThatDoesNotSpeakHttp2IsToldInHttp2) {
  Start();
  const auto client = Connect();
  ASSERT_TRUE(client->Send("GET / HTTP/1.1\r\n"));
  EXPECT_EQ(client->Read(),
            Frame(FrameKind::kSettings, 0, 0) +
                Frame(FrameKind::kGoaway, 0, 0, std::string("\0\0\0\0\0\0\0\1", 8)));
  EXPECT_THAT(lines(), HasSubstr("it does not speak HTTP/2"));
}

TEST_F(Http2GuardTest, WhoSaysNothingIsDroppedAfterAWhile) {
  Start({.opening_time = absl::Milliseconds(200)});
  const auto greeted = Connect();
  const auto server = Greeted(*greeted);
  const auto silent = Connect();
  const auto half = Connect();
  ASSERT_TRUE(half->Send("PRI * HT"));
  const absl::Time begin = absl::Now();
  EXPECT_EQ(silent->Read(), "");
  EXPECT_EQ(half->Read(), "");
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  EXPECT_EQ(lines(), "");
  ASSERT_TRUE(greeted->Send(kBegun));
  EXPECT_EQ(server->Read(kBegun.size()), kBegun);
}

std::string BeginAndReset(uint32_t first, int count) {
  std::string frames;
  for (int i = 0; i < count; ++i, first += 2) {
    frames += Frame(FrameKind::kHeaders, kEndHeaders, first, "x") + Reset(first);
  }
  return frames;
}

TEST_F(Http2GuardTest, ResetsGoOnAtARateAndNobodyWaitsForOthers) {
  Start({.resets = {.burst = 50, .per_second = 200}});
  const auto many = Connect();
  const auto many_server = Greeted(*many);
  const auto few = Connect();
  const auto few_server = Greeted(*few);
  const absl::Time begin = absl::Now();
  const std::string sent = BeginAndReset(1, 350);
  const std::string sent_too = BeginAndReset(1, 5);
  std::atomic<bool> is_over = false;
  std::thread reader([&] {
    EXPECT_EQ(many_server->Read(sent.size()) == sent, true);
    is_over = true;
  });
  ASSERT_TRUE(many->Send(sent));
  ASSERT_TRUE(WaitFor([&] { return !lines().empty(); }));
  ASSERT_TRUE(few->Send(sent_too));
  EXPECT_EQ(few_server->Read(sent_too.size()), sent_too);
  EXPECT_FALSE(is_over);
  reader.join();
  EXPECT_GE(absl::Now() - begin, absl::Seconds(1.4));  // 300 at 200 a second
  EXPECT_THAT(lines(), HasSubstr("clients reset streams faster than 200 a second: they wait"));
}

TEST_F(Http2GuardTest, ResetsThatClientsMakeTheServerSendCountToo) {
  Start({.resets = {.burst = 5, .per_second = 10}});
  const auto client = Connect();
  const auto server = Greeted(*client);
  std::string begun;
  std::string resets;
  for (uint32_t stream = 1; stream < 21; stream += 2) {
    begun += Frame(FrameKind::kHeaders, kEndHeaders, stream, "x");
    resets += Reset(stream, 1);
  }
  ASSERT_TRUE(client->Send(begun));
  EXPECT_EQ(server->Read(begun.size()), begun);
  const absl::Time begin = absl::Now();
  ASSERT_TRUE(server->Send(resets));
  EXPECT_EQ(client->Read(resets.size()), resets);
  ASSERT_TRUE(client->Send(kBegun));
  EXPECT_EQ(server->Read(kBegun.size()), kBegun);
  EXPECT_GE(absl::Now() - begin, absl::Seconds(0.4));  // the five that were not paid for at once
}

TEST_F(Http2GuardTest, WhenAllHaveTooManyStreamsTheOneWithTheMostIsCutOff) {
  Start({.open_streams = 10});
  const auto few = Connect();
  const auto few_server = Greeted(*few);
  const auto many = Connect();
  const auto many_server = Greeted(*many);
  const auto begin = [](const End& client, uint32_t from, uint32_t count) {
    std::string frames;
    for (uint32_t i = 0; i < count; ++i) {
      frames += Frame(FrameKind::kHeaders, kEndHeaders, from + 2 * i, "x");
    }
    EXPECT_TRUE(client.Send(frames));
    return frames.size();
  };
  few_server->Read(begin(*few, 1, 3));
  many_server->Read(begin(*many, 1, 7));
  EXPECT_EQ(lines(), "");
  begin(*few, 7, 1);
  EXPECT_THAT(many->Read(), StartsWith(Frame(FrameKind::kGoaway, 0, 0, "12345678").substr(0, 9)));
  EXPECT_THAT(lines(), HasSubstr("it has the most streams"));
  few_server->Read(begin(*few, 9, 6));  // there is room again
}

TEST_F(Http2GuardTest, StreamsThatAreAnsweredCountNoMore) {
  Start({.open_streams = 10});
  const auto first = Connect();
  const auto first_server = Greeted(*first);
  const auto second = Connect();
  const auto second_server = Greeted(*second);
  const auto begin = [](const End& client, const End& server) {
    std::string frames;
    for (uint32_t stream = 1; stream < 17; stream += 2) {
      frames += Frame(FrameKind::kHeaders, kEndHeaders, stream, "x");
    }
    EXPECT_TRUE(client.Send(frames));
    EXPECT_EQ(server.Read(frames.size()), frames);
  };
  begin(*first, *first_server);
  std::string answers;
  for (uint32_t stream = 1; stream < 17; stream += 2) {
    answers += Frame(FrameKind::kHeaders, kEndHeaders | kEndStream, stream, "x");
  }
  ASSERT_TRUE(first_server->Send(answers));
  EXPECT_EQ(first->Read(answers.size()), answers);
  begin(*second, *second_server);
  const std::string ping = Frame(FrameKind::kPing, 0, 0, "12345678");
  ASSERT_TRUE(second->Send(ping));
  EXPECT_EQ(second_server->Read(ping.size()), ping);
  ASSERT_TRUE(first->Send(ping));
  EXPECT_EQ(first_server->Read(ping.size()), ping);
  EXPECT_EQ(lines(), "");
}

TEST_F(Http2GuardTest, ConnectionsAndDescriptorsAreBounded) {
  Start({.connections = 2});
  const auto first = Connect();
  const auto second = Connect();
  EXPECT_EQ(Connect()->Read(), "");
  EXPECT_THAT(lines(), HasSubstr("there are 2 already"));
  guard_.reset();
  Start({.max_descriptors = 3});
  const auto client = Connect();
  ASSERT_TRUE(client->Send(Hello()));
  EXPECT_EQ(client->Read(), "");
  EXPECT_THAT(lines(), HasSubstr("3 file descriptors are in use"));
}

TEST_F(Http2GuardTest, StopsWithinItsGrace) {
  Start({.opening_time = absl::Hours(1)});
  const auto opening = Connect();
  const auto client = Connect();
  const auto server = Greeted(*client);
  guard_->StopTaking();
  EXPECT_EQ(opening->Read(), "");
  EXPECT_EQ(Connect()->Read(), "");
  ASSERT_TRUE(client->Send(kBegun));  // who is there goes on
  EXPECT_EQ(server->Read(kBegun.size()), kBegun);
  const absl::Time begin = absl::Now();
  guard_->Stop(absl::Milliseconds(300));
  EXPECT_EQ(client->Read(), "");
  const absl::Duration took = absl::Now() - begin;
  EXPECT_GE(took, absl::Milliseconds(299));
  EXPECT_LT(took, absl::Seconds(5));
}

// ---- TLS ----

MutualTls Read(const TestCertificate& own, const TestCertificate& ca) {
  return {ReadFileOrEmpty(own.certificate_file), ReadFileOrEmpty(own.key_file),
          ReadFileOrEmpty(ca.certificate_file)};
}

class Http2GuardTlsTest : public Http2GuardTest {
 protected:
  // Accepts it meanwhile: a client of TLS waits for its handshake.
  std::unique_ptr<TlsTestClient> ConnectTls(const TestCertificate& own, const TestCertificate& ca,
                                            bool http2 = true) {
    std::thread acceptor([this] { Accept(); });
    auto client = std::make_unique<TlsTestClient>(
        listen_address(),
        TlsTestClient::Options{.ca_file = ca.certificate_file, .own = &own, .http2 = http2});
    acceptor.join();
    return client;
  }

  const TestCertificate ca_{"ca", {}};
  const TestCertificate other_ca_{"other-ca", {}};
  const TestCertificate server_{"server", {.issuer = &ca_, .usage = "serverAuth"}};
  const TestCertificate client_{"client", {.issuer = &ca_, .usage = "clientAuth"}};
};

TEST_F(Http2GuardTlsTest, MebibytesGoBothWays) {
  Start({.tls = Read(server_, ca_)});
  const auto client = ConnectTls(client_, ca_);
  ASSERT_TRUE(client->greeted()) << client->error();
  ASSERT_TRUE(client->Send(Hello()));
  auto server = Given();
  EXPECT_EQ(server->Read(Hello().size()), Hello());
  const std::string up = Data(kLarge);
  std::string got;
  std::thread reader([&] { got = server->Read(up.size()); });
  EXPECT_TRUE(client->Send(up));
  reader.join();
  EXPECT_EQ(got == up, true);
  const std::string down = Data(kLarge);
  std::thread writer([&] {
    EXPECT_TRUE(server->Send(down));
    server.reset();
  });
  EXPECT_EQ(client->ReadAll() == down, true);
  EXPECT_TRUE(client->WasClosedInOrder());
  writer.join();
}

TEST_F(Http2GuardTlsTest, RefusalsSayWhyAndWho) {
  Start({.tls = Read(server_, ca_)});
  const TestCertificate stranger("stranger", {.issuer = &other_ca_});
  const TestCertificate expired("expired", {.ends_after_s = -1, .issuer = &ca_});
  const auto expect_line = [&](const std::string& line) {
    EXPECT_TRUE(WaitFor([&] { return absl::StrContains(lines(), line); })) << lines();
  };
  const std::string begin = "a connection was refused, its TLS failed: ";
  ConnectTls(stranger, ca_);
  expect_line(begin +
              "certificate verify failed: unable to get local issuer certificate (from "
              "127.0.0.1:");
  ConnectTls(expired, ca_);
  expect_line(begin + "certificate verify failed: certificate has expired (from 127.0.0.1:");
  ConnectTls(client_, ca_, /*http2=*/false);
  expect_line(begin + "no application protocol (from 127.0.0.1:");
  Connect()->Send(Hello());
  expect_line(begin + "wrong version number (from 127.0.0.1:");
  MutexLock lock(&mutex_);
  EXPECT_TRUE(given_.empty());
}

TEST_F(Http2GuardTlsTest, NewCertificatesAreOfNewConnections) {
  Start({.tls = Read(server_, ca_)});
  const auto before = ConnectTls(client_, ca_);
  ASSERT_TRUE(before->Send(Hello()));
  const auto server = Given();
  const TestCertificate other_server("other", {.issuer = &other_ca_});
  const TestCertificate other_client("other-client", {.issuer = &other_ca_});
  SKEIN_ASSERT_OK(guard_->UseCertificates(Read(other_server, other_ca_)));

  const auto after = ConnectTls(other_client, other_ca_);
  ASSERT_TRUE(after->greeted()) << after->error();
  ASSERT_TRUE(after->Send(Hello()));
  EXPECT_EQ(Given()->Read(Hello().size()), Hello());
  EXPECT_FALSE(ConnectTls(client_, ca_)->greeted());
  ASSERT_TRUE(before->Send(kBegun));
  EXPECT_EQ(server->Read(Hello().size() + kBegun.size()), Hello() + kBegun);

  MutualTls broken = Read(server_, ca_);
  broken.key = Read(client_, ca_).key;
  EXPECT_THAT(guard_->UseCertificates(broken),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the key")));
  EXPECT_TRUE(ConnectTls(other_client, other_ca_)->greeted());
}

TEST_F(Http2GuardTlsTest, HandshakesHaveALimitOfTimeAndHoldUpNobody) {
  Start({.opening_time = absl::Milliseconds(300), .tls = Read(server_, ca_)});
  std::vector<std::unique_ptr<End>> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(Connect());
  EXPECT_TRUE(ConnectTls(client_, ca_)->greeted());
  for (const auto& client : silent) EXPECT_EQ(client->Read(), "");
  EXPECT_EQ(lines(), "");
}

}  // namespace
}  // namespace skein::coordinator

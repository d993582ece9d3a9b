// Tests who gets into a control channel, and what the log says of others.
#include "parallel/comm/control/acceptor.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log/captured_log.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::comm {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

const std::string kKey(kSharedKeyBytes, 'k');

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

class AcceptorTest : public ::testing::Test {
 protected:
  void Start(absl::Duration handshake = absl::Seconds(10)) {
    SKEIN_ASSERT_OK_AND_ASSIGN(
        acceptor_,
        Acceptor::Start({.key = kKey, .identities = {"rank 1", "rank 2"}, .handshake = handshake}));
  }
  absl::StatusOr<SecureSocket> ConnectAs(const std::string& identity,
                                         const std::string& key = kKey) {
    return Connect({"127.0.0.1"}, acceptor_->port(), key, identity, Soon());
  }
  bool Logged(const std::string& what) {
    const absl::Time until = Soon();
    while (absl::Now() < until) {
      if (::testing::Value(log_.text(),
                           ContainsRegex("a connection from (::ffff:)?127.0.0.1:[0-9]+ is "
                                         "refused: .*" +
                                         what))) {
        return true;
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
    ADD_FAILURE() << log_.text();
    return false;
  }

  const CapturedLog log_;
  std::unique_ptr<Acceptor> acceptor_;
};

TEST_F(AcceptorTest, TakesThoseWhoKnowTheKey) {
  Start();
  SKEIN_ASSERT_OK_AND_ASSIGN(SecureSocket two, ConnectAs("rank 2"));
  SKEIN_ASSERT_OK_AND_ASSIGN(SecureSocket one, ConnectAs("rank 1"));
  SKEIN_ASSERT_OK_AND_ASSIGN(auto taken, acceptor_->Take({"rank 1", "rank 2"}, Soon()));
  ASSERT_EQ(taken.size(), 2u);
  // Each is who it said.
  SKEIN_ASSERT_OK(one.tls->Seal("I am one"));
  const std::string bytes = one.tls->TakeOutgoing();
  ASSERT_EQ(send(one.socket.get(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  std::string text;
  for (const absl::Time until = Soon(); text.empty() && absl::Now() < until;) {
    char got[1000];
    const ssize_t size = recv(taken.at("rank 1").socket.get(), got, sizeof(got), 0);
    if (size > 0) taken.at("rank 1").tls->Feed({got, static_cast<size_t>(size)});
    SKEIN_ASSERT_OK(taken.at("rank 1").tls->Open(text));
  }
  EXPECT_EQ(text, "I am one");
  EXPECT_EQ(log_.text(), "");
}

TEST_F(AcceptorTest, RefusesAnotherKey) {
  Start();
  EXPECT_THAT(ConnectAs("rank 1", std::string(kSharedKeyBytes, 'x')).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("the TLS handshake failed")));
  EXPECT_TRUE(Logged("the TLS handshake failed: "));
  SKEIN_EXPECT_OK(ConnectAs("rank 1"));
  SKEIN_EXPECT_OK(acceptor_->Take({"rank 1"}, Soon()));
}

// They hold up nobody, however many they are.
TEST_F(AcceptorTest, RefusesStrangersWithoutAWord) {
  Start(absl::Milliseconds(300));
  std::vector<OwnedFd> silent;
  for (int i = 0; i < 100; ++i) {
    silent.emplace_back(socket(AF_INET, SOCK_STREAM, 0));
    const timeval patience = {.tv_sec = 10};
    setsockopt(silent.back().get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(acceptor_->port()));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(silent.back().get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  }
  const absl::Time begin = absl::Now();
  SKEIN_EXPECT_OK(ConnectAs("rank 1"));
  SKEIN_EXPECT_OK(acceptor_->Take({"rank 1"}, Soon()));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  EXPECT_TRUE(Logged("it has not said in time who it is"));
  char byte = 0;
  for (const OwnedFd& one : silent) {
    ASSERT_EQ(recv(one.get(), &byte, 1, 0), 0);  // it was hung up on
  }
  acceptor_ = nullptr;
  EXPECT_THAT(log_.text(), HasSubstr("more connections were refused"));
}

TEST_F(AcceptorTest, RefusesWhatIsNoTls) {
  Start();
  OwnedFd stranger(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(acceptor_->port()));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(stranger.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  const std::string words = "0123456789abcdef0123456789abcdef\x01";
  ASSERT_GT(send(stranger.get(), words.data(), words.size(), 0), 0);
  EXPECT_TRUE(Logged("the TLS handshake failed: "));
}

TEST_F(AcceptorTest, APlaceIsTakenOnceAndByThoseWhoAreExpected) {
  Start();
  SKEIN_ASSERT_OK_AND_ASSIGN(const SecureSocket one, ConnectAs("rank 1"));
  SKEIN_EXPECT_OK(ConnectAs("rank 1"));  // it learns of it later
  EXPECT_TRUE(Logged("rank 1 is connected already"));
  SKEIN_EXPECT_OK(ConnectAs("rank 7"));
  EXPECT_TRUE(Logged("nobody waits for 'rank 7'"));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto taken, acceptor_->Take({"rank 1"}, Soon()));
  EXPECT_EQ(taken.size(), 1u);
}

TEST_F(AcceptorTest, SaysWhoHasNotCome) {
  Start();
  SKEIN_ASSERT_OK_AND_ASSIGN(const SecureSocket one, ConnectAs("rank 1"));
  EXPECT_THAT(acceptor_->Take({"rank 1", "rank 2"}, absl::Now() + absl::Milliseconds(50)).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("rank 2 has not connected")));
}

}  // namespace
}  // namespace skein::comm

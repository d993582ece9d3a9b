// TLS of the guard: who is let in, and what goes through.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/mutex.h"
#include "base/test_util.h"
#include "base/tls/certificate_for_tests.h"
#include "base/tls/mutual_tls.h"
#include "coordinator/gateway/tls_for_tests.h"
#include "coordinator/http2_guard/hand_made_frames.h"
#include "coordinator/http2_guard/http2_guard_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;

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

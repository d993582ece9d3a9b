// TLS of HttpServer, with clients that look at certificates.
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/test_util.h"
#include "coordinator/gateway/http_client_for_tests.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/gateway/tls_context.h"
#include "coordinator/gateway/tls_for_tests.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// An answer that never comes, and says when it is dropped.
class Never final : public HttpAnswer {
 public:
  explicit Never(std::function<void()> dropped) : dropped_(std::move(dropped)) {}
  ~Never() override { dropped_(); }
  Part Next() override { return {}; }

 private:
  const std::function<void()> dropped_;
};

class TlsTest : public ::testing::Test {
 protected:
  void Start(const std::function<void(HttpServerOptions&)>& change = [](HttpServerOptions&) {}) {
    HttpServerOptions options = {.listen = "127.0.0.1:0", .tls = FilesOf(server_certificate_)};
    change(options);
    const auto text = [](int status, const std::string& body) {
      return std::make_unique<WholeAnswer>(HttpHead{.status = status}, body);
    };
    SKEIN_ASSERT_OK_AND_ASSIGN(
        server_,
        HttpServer::Start(
            options,
            [this, text](const HttpRequest& request,
                         const HttpServer::Wake&) -> std::unique_ptr<HttpAnswer> {
              if (request.path == "/never") {
                return std::make_unique<Never>([this] { dropped_ = true; });
              }
              if (request.path == "/large") return text(200, std::string(3 << 20, 'x'));
              return text(200, request.path + request.body);
            },
            [text](int status, std::string_view why) { return text(status, std::string(why)); }));
  }
  static TlsFiles FilesOf(const TestCertificate& of) { return {of.certificate_file, of.key_file}; }
  TlsTestClient::Options Trusting(const TestCertificate& ca) {
    return {.ca_file = ca.certificate_file};
  }
  bool WaitUntil(const std::function<bool()>& holds) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!holds() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
    return holds();
  }

  const TestCertificate ca_{"ca", {}};
  const TestCertificate other_ca_{"other-ca", {}};
  const TestCertificate server_certificate_{"server", {.issuer = &ca_}};
  std::atomic<bool> dropped_ = false;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(TlsTest, WhoTrustsTheCaIsServed) {
  Start();
  TlsTestClient client(server_->address(), Trusting(ca_));
  ASSERT_TRUE(client.greeted()) << client.error();
  EXPECT_EQ(client.version(), "TLSv1.3");
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(client.Send("POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\nbc"));
    EXPECT_THAT(client.ReadUntil("/abc"), StartsWith("HTTP/1.1 200 OK\r\n"));
  }
  // Requests that come together.
  EXPECT_TRUE(client.Send("GET /x HTTP/1.1\r\n\r\nGET /y HTTP/1.1\r\nConnection: close\r\n\r\n"));
  EXPECT_THAT(client.ReadAll(), AllOf(HasSubstr("\r\n\r\n/xHTTP/1.1 200"), EndsWith("\r\n\r\n/y")));
  EXPECT_TRUE(client.WasClosedInOrder());
}

TEST_F(TlsTest, LongAnswersComeWhole) {
  Start();
  TlsTestClient client(server_->address(), Trusting(ca_));
  EXPECT_TRUE(client.Send("GET /large HTTP/1.1\r\nConnection: close\r\n\r\n"));
  const std::string answer = client.ReadAll();
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, size_t{3} << 20);
  EXPECT_TRUE(client.WasClosedInOrder());
}

TEST_F(TlsTest, ClientsRefuseOtherCasAndOtherHosts) {
  Start();
  const TlsTestClient other(server_->address(), Trusting(other_ca_));
  EXPECT_FALSE(other.greeted());
  EXPECT_THAT(other.error(), HasSubstr("certificate verify failed; unable to get local issuer"));
  TlsTestClient::Options options = Trusting(ca_);
  options.host = "skein.example";
  const TlsTestClient elsewhere(server_->address(), options);
  EXPECT_FALSE(elsewhere.greeted());
  EXPECT_THAT(elsewhere.error(), HasSubstr("certificate verify failed; hostname mismatch"));
}

TEST_F(TlsTest, OldVersionsAndWeakCiphersAreRefused) {
  Start();
  TlsTestClient::Options options = Trusting(ca_);
  options.max_version = TLS1_2_VERSION;
  EXPECT_EQ(TlsTestClient(server_->address(), options).version(), "TLSv1.2");
  options.ciphers = "ECDHE-ECDSA-AES128-SHA256";  // CBC
  EXPECT_FALSE(TlsTestClient(server_->address(), options).greeted());
  options.ciphers = nullptr;
  options.max_version = TLS1_1_VERSION;
  EXPECT_FALSE(TlsTestClient(server_->address(), options).greeted());
}

TEST_F(TlsTest, PlainRequestsAreClosed) {
  Start();
  HttpTestClient client(server_->address());
  client.Get("/");
  const std::string said = client.ReadUntil("nothing");  // an alert, at most
  EXPECT_LT(said.size(), 16u);
  EXPECT_TRUE(client.IsClosed());
  EXPECT_TRUE(WaitUntil([&] { return server_->connections() == 0; }));
}

TEST_F(TlsTest, HandshakesHaveALimitOfTime) {
  Start([](HttpServerOptions& options) { options.handshake_timeout = absl::Milliseconds(300); });
  const absl::Time begin = absl::Now();
  HttpTestClient silent(server_->address());
  EXPECT_TRUE(silent.IsClosed());
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(300));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  HttpTestClient slow(server_->address());
  for (int i = 0; i < 4; ++i) {  // the limit is of all of it
    slow.Send("\x16");
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_TRUE(slow.IsClosed());
  // It is that of the handshake alone.
  TlsTestClient client(server_->address(), Trusting(ca_));
  absl::SleepFor(absl::Milliseconds(600));
  EXPECT_TRUE(client.Send("GET /late HTTP/1.1\r\n\r\n"));
  EXPECT_THAT(client.ReadUntil("/late"), StartsWith("HTTP/1.1 200"));
}

TEST_F(TlsTest, IdleConnectionsAreBoundedAndEnd) {
  Start([](HttpServerOptions& options) {
    options.max_connections = 100;
    options.idle_timeout = absl::Seconds(2);
  });
  std::vector<std::unique_ptr<TlsTestClient>> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(std::make_unique<TlsTestClient>(server_->address(), Trusting(ca_)));
    ASSERT_TRUE(clients.back()->greeted()) << i;
  }
  EXPECT_EQ(server_->connections(), 100);
  EXPECT_FALSE(TlsTestClient(server_->address(), Trusting(ca_)).greeted());
  EXPECT_TRUE(clients[50]->Send("GET /50 HTTP/1.1\r\n\r\n"));
  EXPECT_THAT(clients[50]->ReadUntil("/50"), StartsWith("HTTP/1.1 200"));
  clients.resize(60);
  EXPECT_TRUE(WaitUntil([&] { return server_->connections() == 60; }));
  EXPECT_TRUE(TlsTestClient(server_->address(), Trusting(ca_)).greeted());
  EXPECT_EQ(clients[0]->ReadAll(), "");
  EXPECT_TRUE(clients[0]->WasClosedInOrder());
  EXPECT_TRUE(WaitUntil([&] { return server_->connections() == 0; }));
}

TEST_F(TlsTest, AClientThatGoesAwayEndsItsAnswer) {
  Start();
  TlsTestClient client(server_->address(), Trusting(ca_));
  EXPECT_TRUE(client.Send("GET /never HTTP/1.1\r\n\r\n"));
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_FALSE(dropped_);
  client.Close();
  EXPECT_TRUE(WaitUntil([&] { return dropped_.load(); }));
}

TEST_F(TlsTest, OneThatHasSentMoreAheadDoesSo) {
  Start();
  TlsTestClient client(server_->address(), Trusting(ca_));
  EXPECT_TRUE(client.Send("GET /never HTTP/1.1\r\n\r\n"));
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_TRUE(client.Send("GET /more HTTP/1.1\r\n\r\n"));
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_FALSE(dropped_);
  client.Close();
  const absl::Time closed = absl::Now();
  EXPECT_TRUE(WaitUntil([&] { return dropped_.load(); }));
  EXPECT_LT(absl::Now() - closed, absl::Seconds(5));  // not when the next filler is due
}

TEST_F(TlsTest, ReloadsAreOfNewConnections) {
  Start();
  TlsTestClient before(server_->address(), Trusting(ca_));
  const TestCertificate renewed("server", {.issuer = &other_ca_});  // in the same files
  EXPECT_TRUE(TlsTestClient(server_->address(), Trusting(ca_)).greeted());
  SKEIN_EXPECT_OK(server_->ReloadTls());
  EXPECT_FALSE(TlsTestClient(server_->address(), Trusting(ca_)).greeted());
  EXPECT_TRUE(TlsTestClient(server_->address(), Trusting(other_ca_)).greeted());
  EXPECT_TRUE(before.Send("GET /a HTTP/1.1\r\n\r\n"));
  EXPECT_THAT(before.ReadUntil("/a"), StartsWith("HTTP/1.1 200"));
  SKEIN_ASSERT_OK(WriteFile(renewed.key_file, "broken"));
  EXPECT_THAT(server_->ReloadTls(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(renewed.key_file)));
  EXPECT_TRUE(TlsTestClient(server_->address(), Trusting(other_ca_)).greeted());
}

TEST_F(TlsTest, ShutdownEndsIdleConnections) {
  Start();
  TlsTestClient client(server_->address(), Trusting(ca_));
  HttpTestClient silent(server_->address());
  EXPECT_TRUE(WaitUntil([&] { return server_->connections() == 2; }));
  const absl::Time begin = absl::Now();
  server_->Shutdown(absl::Seconds(10));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
}

TEST_F(TlsTest, FilesThatDoNotServeAreNamedWithTheReason) {
  const auto says = [&](const TlsFiles& files) {
    HttpServerOptions options = {.listen = "127.0.0.1:0", .tls = files};
    const auto started = HttpServer::Start(options, nullptr, nullptr);
    EXPECT_FALSE(started.ok());
    return std::string(started.status().message());
  };
  const TlsFiles good = FilesOf(server_certificate_);
  EXPECT_THAT(says({"/nowhere/a.crt", good.key}), StartsWith("/nowhere/a.crt: No such file"));
  EXPECT_THAT(says({good.certificate, "/nowhere/a.key"}), StartsWith("/nowhere/a.key: No such"));
  EXPECT_THAT(
      says({good.certificate, other_ca_.key_file}),
      StartsWith(absl::StrCat(other_ca_.key_file, ": is not the key of ", good.certificate)));
  EXPECT_THAT(says({good.key, good.key}),
              StartsWith(good.key + ": holds no certificate in PEM (no start line)"));
  EXPECT_THAT(says({good.certificate, good.certificate}),
              StartsWith(good.certificate + ": holds no private key in PEM without a password"));

  const std::string chain = ::testing::TempDir() + "/chain.crt";
  const std::string own = ReadFileOrEmpty(good.certificate);
  SKEIN_ASSERT_OK(WriteFile(chain, own + own.substr(0, own.size() / 2)));
  EXPECT_THAT(says({chain, good.key}), StartsWith(chain + ": a certificate behind the first"));

  const TestCertificate expired("expired", {.ends_after_s = -1, .issuer = &ca_});
  EXPECT_THAT(says(FilesOf(expired)),
              StartsWith(expired.certificate_file + ": the certificate expired on "));
  const TestCertificate early("early", {.begins_after_s = 100, .issuer = &ca_});
  EXPECT_THAT(says(FilesOf(early)),
              StartsWith(early.certificate_file + ": the certificate is not valid before "));
}

TEST_F(TlsTest, AKeyWithAPasswordIsRefusedAndNobodyIsAsked) {
  const std::string path = ::testing::TempDir() + "/locked.key";
  FILE* const file = std::fopen(path.c_str(), "w");
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  char password[] = "secret";
  EXPECT_EQ(PEM_write_PKCS8PrivateKey(file, key, EVP_aes_256_cbc(), password, 6, nullptr, nullptr),
            1);
  EVP_PKEY_free(key);
  std::fclose(file);
  EXPECT_THAT(LoadTlsContext({server_certificate_.certificate_file, path}, absl::Now()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith(path + ": holds no private key in PEM without a password")));
}

// Of the intermediate that signed it, which the file has behind it.
TEST_F(TlsTest, ChainsAreSent) {
  const TestCertificate leaf("leaf", {.issuer = &ca_});
  const std::string chain = ::testing::TempDir() + "/both.crt";
  SKEIN_ASSERT_OK(WriteFile(
      chain, ReadFileOrEmpty(leaf.certificate_file) + ReadFileOrEmpty(ca_.certificate_file)));
  SKEIN_ASSERT_OK_AND_ASSIGN(const TlsContext context,
                             LoadTlsContext({chain, leaf.key_file}, absl::Now()));
  EXPECT_EQ(SSL_CTX_get_min_proto_version(context.get()), TLS1_2_VERSION);
  STACK_OF(X509)* sent = nullptr;
  SSL_CTX_get0_chain_certs(context.get(), &sent);
  EXPECT_EQ(sk_X509_num(sent), 1);
}

}  // namespace
}  // namespace skein::coordinator

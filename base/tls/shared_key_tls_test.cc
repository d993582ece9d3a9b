#include "base/tls/shared_key_tls.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <utility>

#include "base/test_util.h"
#include "base/tls/certificate_for_tests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kKey(kSharedKeyBytes, 'k');

class SharedKeyTlsTest : public ::testing::Test {
 protected:
  void Make(const std::string& client_key, const std::string& server_key) {
    SKEIN_ASSERT_OK_AND_ASSIGN(client_, SharedKeyTls::Client(client_key, "rank 3"));
    SKEIN_ASSERT_OK_AND_ASSIGN(server_, SharedKeyTls::Server(server_key));
  }
  // Carries what one end has to say to the other.
  void Carry(SharedKeyTls& from, SharedKeyTls& to) {
    const std::string bytes = from.TakeOutgoing();
    wire_ += bytes;
    to.Feed(bytes);
  }
  void ShakeHands() {
    bool over = false;
    for (int round = 0; round < 5 && !over; ++round) {
      SKEIN_ASSERT_OK_AND_ASSIGN(const bool client, client_->Handshake());
      Carry(*client_, *server_);
      SKEIN_ASSERT_OK_AND_ASSIGN(const bool server, server_->Handshake());
      Carry(*server_, *client_);
      over = client && server;
    }
    EXPECT_TRUE(over);
  }
  // What has come at this end.
  static std::string Read(SharedKeyTls& end) {
    std::string text;
    SKEIN_EXPECT_OK(end.Open(text));
    return text;
  }

  std::unique_ptr<SharedKeyTls> client_, server_;
  std::string wire_;  // all that was carried
};

TEST_F(SharedKeyTlsTest, BothEndsUnderstandEachOtherAndNobodyElseDoes) {
  Make(kKey, kKey);
  ShakeHands();
  EXPECT_EQ(server_->identity(), "rank 3");
  EXPECT_THAT(wire_, HasSubstr("rank 3"));  // before anything is secret
  for (const size_t size : {1, 100, 16 << 10, 3 << 20}) {
    std::string text;
    while (text.size() < size) text += "a prompt that nobody is to read; ";
    SKEIN_EXPECT_OK(client_->Seal(text));
    Carry(*client_, *server_);
    EXPECT_TRUE(Read(*server_) == text) << size;
    SKEIN_EXPECT_OK(server_->Seal(text));
    Carry(*server_, *client_);
    EXPECT_TRUE(Read(*client_) == text) << size;
  }
  EXPECT_EQ(Read(*client_), "");
  EXPECT_THAT(wire_, Not(HasSubstr("prompt")));
}

TEST_F(SharedKeyTlsTest, TextComesInAnyPieces) {
  Make(kKey, kKey);
  ShakeHands();
  SKEIN_EXPECT_OK(client_->Seal("some text"));
  std::string got;
  for (const char byte : client_->TakeOutgoing()) {
    EXPECT_EQ(got, "");  // a record opens with its last byte
    server_->Feed({&byte, 1});
    got += Read(*server_);
  }
  EXPECT_EQ(got, "some text");
}

TEST_F(SharedKeyTlsTest, AnotherKeyIsRefusedByBothEnds) {
  Make(std::string(kSharedKeyBytes, 'x'), kKey);
  SKEIN_ASSERT_OK(client_->Handshake());
  Carry(*client_, *server_);
  EXPECT_THAT(server_->Handshake(), StatusIs(absl::StatusCode::kPermissionDenied,
                                             HasSubstr("the TLS handshake failed: ")));
  Carry(*server_, *client_);
  EXPECT_THAT(client_->Handshake(), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("")));
}

TEST_F(SharedKeyTlsTest, WhatIsNoTlsIsRefused) {
  Make(kKey, kKey);
  server_->Feed("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(server_->Handshake(), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("")));
  client_->Feed("220 mail.example ESMTP\r\n");
  EXPECT_THAT(client_->Handshake(), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("")));
}

TEST_F(SharedKeyTlsTest, WhatIsChangedOnTheWayIsNoticed) {
  Make(kKey, kKey);
  ShakeHands();
  SKEIN_EXPECT_OK(client_->Seal("some text"));
  std::string bytes = client_->TakeOutgoing();
  bytes[bytes.size() / 2] ^= 1;
  server_->Feed(bytes);
  std::string text;
  EXPECT_THAT(server_->Open(text), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("TLS: ")));
  EXPECT_EQ(text, "");
}

TEST_F(SharedKeyTlsTest, WhatIsRepeatedIsNoticed) {
  Make(kKey, kKey);
  ShakeHands();
  SKEIN_EXPECT_OK(client_->Seal("some text"));
  const std::string bytes = client_->TakeOutgoing();
  server_->Feed(bytes);
  EXPECT_EQ(Read(*server_), "some text");
  server_->Feed(bytes);
  std::string text;
  EXPECT_FALSE(server_->Open(text).ok());
  EXPECT_EQ(text, "");
}

// Each conversation has keys of its own: a recorded one cannot be played again.
TEST_F(SharedKeyTlsTest, ARecordedConversationIsNoConversation) {
  Make(kKey, kKey);
  ShakeHands();
  SKEIN_EXPECT_OK(client_->Seal("some text"));
  // All that the client ever said, the handshake included.
  std::unique_ptr<SharedKeyTls> again;
  SKEIN_ASSERT_OK_AND_ASSIGN(again, SharedKeyTls::Server(kKey));
  SKEIN_ASSERT_OK_AND_ASSIGN(client_, SharedKeyTls::Client(kKey, "rank 3"));
  SKEIN_ASSERT_OK(client_->Handshake());
  const std::string first = client_->TakeOutgoing();
  server_ = std::move(again);
  server_->Feed(first);
  SKEIN_ASSERT_OK(server_->Handshake());
  client_->Feed(server_->TakeOutgoing());
  SKEIN_ASSERT_OK(client_->Handshake());
  SKEIN_EXPECT_OK(client_->Seal("some text"));
  const std::string rest = client_->TakeOutgoing();
  SKEIN_ASSERT_OK_AND_ASSIGN(again, SharedKeyTls::Server(kKey));
  again->Feed(first);
  SKEIN_ASSERT_OK(again->Handshake());
  again->Feed(rest);
  EXPECT_FALSE(again->Handshake().ok());
}

// Any certificate, as whoever stands in between can make one: it is not what was asked for.
TEST(SharedKeyTlsCertificateTest, ACertificateIsNoKey) {
  const TestCertificate certificate("leader", {});
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_server_method()),
                                                                  SSL_CTX_free);
  ASSERT_EQ(SSL_CTX_use_certificate_file(context.get(), certificate.certificate_file.c_str(),
                                         SSL_FILETYPE_PEM),
            1);
  ASSERT_EQ(
      SSL_CTX_use_PrivateKey_file(context.get(), certificate.key_file.c_str(), SSL_FILETYPE_PEM),
      1);
  const std::unique_ptr<SSL, decltype(&SSL_free)> server(SSL_new(context.get()), SSL_free);
  BIO* const in = BIO_new(BIO_s_mem());
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(server.get(), in, out);
  SSL_set_accept_state(server.get());
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto client, SharedKeyTls::Client(kKey, "rank 3"));
  SKEIN_ASSERT_OK(client->Handshake());
  const std::string hello = client->TakeOutgoing();
  BIO_write(in, hello.data(), static_cast<int>(hello.size()));
  SSL_do_handshake(server.get());
  std::string answer(BIO_ctrl_pending(out), '\0');
  ASSERT_FALSE(answer.empty());
  BIO_read(out, answer.data(), static_cast<int>(answer.size()));
  client->Feed(answer);
  EXPECT_THAT(client->Handshake(), StatusIs(absl::StatusCode::kPermissionDenied,
                                            HasSubstr("certificate verify failed")));
}

TEST(SharedKeyTlsSizesTest, AKeyHasItsSize) {
  EXPECT_FALSE(SharedKeyTls::Client("short", "rank 1").ok());
  EXPECT_FALSE(SharedKeyTls::Server("").ok());
  EXPECT_FALSE(SharedKeyTls::Client(kKey, std::string(129, 'i')).ok());
}

}  // namespace
}  // namespace skein

// A client that looks at certificates, for tests of TLS on the wire.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/tls/certificate_for_tests.h"
#include "gtest/gtest.h"

namespace skein::coordinator {

class TlsTestClient {
 public:
  struct Options {
    std::string ca_file;
    std::string host = "localhost";
    int max_version = TLS1_3_VERSION;
    const char* ciphers = nullptr;         // of TLS 1.2
    const TestCertificate* own = nullptr;  // is shown to the server
    bool http2 = false;                    // is said to be spoken
  };

  TlsTestClient(const std::string& address, const Options& options) {
    signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets that the other end has closed
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    EXPECT_EQ(SSL_CTX_load_verify_locations(context_.get(), options.ca_file.c_str(), nullptr), 1);
    SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context_.get(), options.max_version);
    if (options.ciphers != nullptr) SSL_CTX_set_cipher_list(context_.get(), options.ciphers);
    if (options.own != nullptr) {
      SSL_CTX_use_certificate_file(context_.get(), options.own->certificate_file.c_str(),
                                   SSL_FILETYPE_PEM);
      SSL_CTX_use_PrivateKey_file(context_.get(), options.own->key_file.c_str(), SSL_FILETYPE_PEM);
    }
    constexpr unsigned char kHttp2[] = {2, 'h', '2'};
    if (options.http2) SSL_CTX_set_alpn_protos(context_.get(), kHttp2, sizeof(kHttp2));
    const HostPort to = *ParseHostPort(address);
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    const timeval patience = {.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in in = {};
    in.sin_family = AF_INET;
    in.sin_port = htons(static_cast<uint16_t>(to.port));
    inet_pton(AF_INET, to.host.c_str(), &in.sin_addr);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&in), sizeof(in)), 0);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set1_host(ssl_.get(), options.host.c_str());
    SSL_set_tlsext_host_name(ssl_.get(), options.host.c_str());
    SSL_set_fd(ssl_.get(), fd_);
    ERR_clear_error();
    greeted_ = SSL_connect(ssl_.get()) == 1;
    if (!greeted_) {
      const char* const reason = ERR_reason_error_string(ERR_get_error());
      error_ = absl::StrCat(reason == nullptr ? "" : reason, "; ",
                            X509_verify_cert_error_string(SSL_get_verify_result(ssl_.get())));
    }
  }
  ~TlsTestClient() { Close(); }
  TlsTestClient(const TlsTestClient&) = delete;

  bool greeted() const { return greeted_; }
  const std::string& error() const { return error_; }  // where it is not
  std::string version() const { return SSL_get_version(ssl_.get()); }

  bool Send(std::string_view bytes) {
    return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) ==
           static_cast<int>(bytes.size());
  }
  // What comes up to `end`, or to the end.
  std::string ReadUntil(std::string_view end) {
    std::string read;
    char byte;
    while (!read.ends_with(end) && SSL_read(ssl_.get(), &byte, 1) == 1) read += byte;
    return read;
  }
  std::string ReadAll() {
    std::string read;
    char bytes[4096];
    for (int got; (got = SSL_read(ssl_.get(), bytes, sizeof(bytes))) > 0;) {
      read.append(bytes, static_cast<size_t>(got));
    }
    return read;
  }
  // Whether the other end has said that there is no more, so that nobody has cut it.
  bool WasClosedInOrder() const { return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN); }
  // As clients leave: it is said, and then the connection is closed.
  void Close() {
    if (fd_ < 0) return;
    if (greeted_) SSL_shutdown(ssl_.get());
    close(fd_);
    fd_ = -1;
  }

 private:
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{SSL_CTX_new(TLS_client_method()),
                                                                   SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{nullptr, SSL_free};
  int fd_ = -1;
  bool greeted_ = false;
  std::string error_;
};

}  // namespace skein::coordinator

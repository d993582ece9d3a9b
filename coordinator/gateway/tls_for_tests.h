// Certificates, and a client that looks at them, for tests of TLS on the wire.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "gtest/gtest.h"

namespace skein::coordinator {

// A certificate and its key, in files of the test's folder. Its own issuer, or another's.
class TestCertificate {
 public:
  struct Options {
    std::string host = "localhost";  // of a server
    int64_t begins_after_s = -3600;
    int64_t ends_after_s = 3600;
    const TestCertificate* issuer = nullptr;
  };

  TestCertificate(const std::string& name, const Options& options)
      : certificate_file(absl::StrCat(::testing::TempDir(), "/", name, ".crt")),
        key_file(absl::StrCat(::testing::TempDir(), "/", name, ".key")) {
    X509* const made = certificate_.get();
    X509_set_version(made, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made), next_serial_++);
    X509_gmtime_adj(X509_getm_notBefore(made), options.begins_after_s);
    X509_gmtime_adj(X509_getm_notAfter(made), options.ends_after_s);
    X509_set_pubkey(made, key_.get());
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    const TestCertificate& issuer = options.issuer == nullptr ? *this : *options.issuer;
    X509_set_issuer_name(made, X509_get_subject_name(issuer.certificate_.get()));
    Add(NID_basic_constraints, options.issuer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
    Add(NID_subject_alt_name, "DNS:" + options.host);
    EXPECT_GT(X509_sign(made, issuer.key_.get(), EVP_sha256()), 0);
    Write(certificate_file, [&](FILE* file) { return PEM_write_X509(file, made); });
    Write(key_file, [&](FILE* file) {
      return PEM_write_PrivateKey(file, key_.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
  }

  const std::string certificate_file;
  const std::string key_file;

 private:
  void Add(int kind, const std::string& value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
    EXPECT_EQ(X509_add_ext(certificate_.get(), extension, -1), 1);
    X509_EXTENSION_free(extension);
  }
  template <typename Writer>
  static void Write(const std::string& path, const Writer& writer) {
    FILE* const file = std::fopen(path.c_str(), "w");
    EXPECT_EQ(writer(file), 1);
    std::fclose(file);
  }

  inline static int64_t next_serial_ = 1;
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key_{EVP_EC_gen("P-256"),
                                                                 EVP_PKEY_free};
  const std::unique_ptr<X509, decltype(&X509_free)> certificate_{X509_new(), X509_free};
};

class TlsTestClient {
 public:
  struct Options {
    std::string ca_file;
    std::string host = "localhost";
    int max_version = TLS1_3_VERSION;
    const char* ciphers = nullptr;  // of TLS 1.2
  };

  TlsTestClient(const std::string& address, const Options& options) {
    signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets that the other end has closed
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    EXPECT_EQ(SSL_CTX_load_verify_locations(context_.get(), options.ca_file.c_str(), nullptr), 1);
    SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context_.get(), options.max_version);
    if (options.ciphers != nullptr) SSL_CTX_set_cipher_list(context_.get(), options.ciphers);
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

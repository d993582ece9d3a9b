#include "base/tls/shared_key_tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein {
namespace {

constexpr size_t kMostIdentityBytes = 128;
constexpr unsigned char kCipher[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256
constexpr char kCipherName[] = "TLS_AES_128_GCM_SHA256";

std::string LastError() {
  const unsigned long code = ERR_get_error();
  const char* const reason = ERR_reason_error_string(code);
  ERR_clear_error();
  return reason != nullptr ? reason : "of an unknown kind";
}

class End final : public SharedKeyTls {
 public:
  End(std::string_view key, std::string_view identity) : key_(key), identity_(identity) {}

  absl::Status Start(bool is_server) {
    ERR_clear_error();
    context_.reset(SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method()));
    if (context_ == nullptr || SSL_CTX_set_min_proto_version(context_.get(), TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context_.get(), kCipherName) != 1 ||
        SSL_CTX_set_num_tickets(context_.get(), 0) != 1) {
      return Broken();
    }
    SSL_CTX_set_session_cache_mode(context_.get(), SSL_SESS_CACHE_OFF);
    SSL_CTX_clear_options(context_.get(), SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    // A server without the key may have a certificate: it is nobody's.
    if (!is_server) SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    ssl_.reset(SSL_new(context_.get()));
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    if (ssl_ == nullptr || in_ == nullptr || out_ == nullptr) {
      BIO_free(in_);
      BIO_free(out_);
      return Broken();
    }
    BIO_set_mem_eof_return(in_, -1);     // more may come
    SSL_set_bio(ssl_.get(), in_, out_);  // owns them
    SSL_set_app_data(ssl_.get(), this);
    if (is_server) {
      SSL_set_psk_find_session_callback(ssl_.get(), FindSession);
      SSL_set_accept_state(ssl_.get());
    } else {
      SSL_set_psk_use_session_callback(ssl_.get(), UseSession);
      SSL_set_connect_state(ssl_.get());
    }
    return absl::OkStatus();
  }

  void Feed(std::string_view bytes) override {
    while (!bytes.empty()) {
      const int size = static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX));
      if (BIO_write(in_, bytes.data(), size) != size) return;  // no memory: the next call fails
      bytes.remove_prefix(size);
    }
  }

  std::string TakeOutgoing() override {
    std::string bytes(BIO_ctrl_pending(out_), '\0');
    if (!bytes.empty()) BIO_read(out_, bytes.data(), static_cast<int>(bytes.size()));
    return bytes;
  }

  absl::StatusOr<bool> Handshake() override {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_.get());
    if (result == 1) return true;
    if (SSL_get_error(ssl_.get(), result) == SSL_ERROR_WANT_READ) return false;
    return absl::PermissionDeniedError(absl::StrCat("the TLS handshake failed: ", LastError()));
  }

  const std::string& identity() const override { return identity_; }

  absl::Status Seal(std::string_view text) override {
    ERR_clear_error();
    size_t written = 0;
    if (text.empty() || SSL_write_ex(ssl_.get(), text.data(), text.size(), &written) == 1) {
      return absl::OkStatus();
    }
    return absl::InternalError(absl::StrCat("TLS: ", LastError()));
  }

  absl::Status Open(std::string& text) override {
    ERR_clear_error();
    char part[16 << 10];  // as much as comes at once
    while (true) {
      size_t size = 0;
      if (SSL_read_ex(ssl_.get(), part, sizeof(part), &size) == 1) {
        text.append(part, size);
        continue;
      }
      const int error = SSL_get_error(ssl_.get(), 0);
      if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_ZERO_RETURN) return absl::OkStatus();
      return absl::DataLossError(absl::StrCat("TLS: ", LastError()));
    }
  }

 private:
  static absl::Status Broken() {
    return absl::InternalError(absl::StrCat("OpenSSL cannot do TLS 1.3: ", LastError()));
  }

  // Owned by the caller. Null, without memory, fails the handshake.
  SSL_SESSION* NewSession() {
    SSL_SESSION* const session = SSL_SESSION_new();
    const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl_.get(), kCipher);
    if (session != nullptr && cipher != nullptr &&
        SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key_.data()),
                                    key_.size()) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
      return session;
    }
    SSL_SESSION_free(session);
    return nullptr;
  }

  static int UseSession(SSL* ssl, const EVP_MD* digest, const unsigned char** identity,
                        size_t* identity_size, SSL_SESSION** session) {
    End* const self = static_cast<End*>(SSL_get_app_data(ssl));
    *session = nullptr;
    if (digest != nullptr && EVP_MD_get_type(digest) != NID_sha256) return 1;
    *session = self->NewSession();
    *identity = reinterpret_cast<const unsigned char*>(self->identity_.data());
    *identity_size = self->identity_.size();
    return *session != nullptr ? 1 : 0;
  }

  static int FindSession(SSL* ssl, const unsigned char* identity, size_t identity_size,
                         SSL_SESSION** session) {
    End* const self = static_cast<End*>(SSL_get_app_data(ssl));
    *session = nullptr;
    if (identity_size > kMostIdentityBytes) return 1;
    self->identity_.assign(reinterpret_cast<const char*>(identity), identity_size);
    *session = self->NewSession();
    return *session != nullptr ? 1 : 0;
  }

  const std::string key_;
  std::string identity_;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{nullptr, SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{nullptr, SSL_free};
  BIO* in_ = nullptr;  // both are ssl_'s
  BIO* out_ = nullptr;
};

absl::StatusOr<std::unique_ptr<SharedKeyTls>> Make(std::string_view key, std::string_view identity,
                                                   bool is_server) {
  if (key.size() != kSharedKeyBytes || identity.size() > kMostIdentityBytes) {
    return absl::InternalError(absl::StrCat("a key of ", key.size(), " bytes, a name of ",
                                            identity.size(), ": TLS takes ", kSharedKeyBytes,
                                            ", and at most ", kMostIdentityBytes));
  }
  auto end = std::make_unique<End>(key, identity);
  if (absl::Status started = end->Start(is_server); !started.ok()) return started;
  return end;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedKeyTls>> SharedKeyTls::Client(std::string_view key,
                                                                   std::string_view identity) {
  return Make(key, identity, /*is_server=*/false);
}

absl::StatusOr<std::unique_ptr<SharedKeyTls>> SharedKeyTls::Server(std::string_view key) {
  return Make(key, "", /*is_server=*/true);
}

}  // namespace skein

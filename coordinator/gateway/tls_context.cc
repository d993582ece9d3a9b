#include "coordinator/gateway/tls_context.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdint>
#include <ctime>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace skein::coordinator {
namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;
constexpr char kCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";  // of TLS 1.2

template <auto free>
struct Freer {
  template <typename T>
  void operator()(T* of) const {
    free(of);
  }
};
using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;

absl::Status Wrong(const std::string& file, std::string_view what) {
  // The first error says most; others only that what called it failed.
  const char* const reason = ERR_reason_error_string(ERR_get_error());
  ERR_clear_error();
  const std::string why = reason == nullptr ? "" : absl::StrCat(" (", reason, ")");
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", std::string(what), why));
}

// Nobody is there to type one; OpenSSL would ask the terminal.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return -1; }

absl::StatusOr<Bio> Open(const std::string& file) {
  SKEIN_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxFileBytes));
  Bio bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || BIO_write(bio.get(), text.data(), static_cast<int>(text.size())) !=
                            static_cast<int>(text.size())) {
    return Wrong(file, "cannot be read");
  }
  return bio;
}

std::string TimeText(const ASN1_TIME* time) {
  const Bio text(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(text.get(), time);
  char* data = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(text.get(), &data));
  return {data, size};
}

absl::Status CheckTime(const std::string& file, const X509& certificate, absl::Time now) {
  std::time_t seconds = absl::ToTimeT(now);
  const ASN1_TIME* const end = X509_get0_notAfter(&certificate);
  const ASN1_TIME* const begin = X509_get0_notBefore(&certificate);
  if (X509_cmp_time(end, &seconds) <= 0) {
    return Wrong(file, absl::StrCat("the certificate expired on ", TimeText(end)));
  }
  if (X509_cmp_time(begin, &seconds) > 0) {
    return Wrong(file, absl::StrCat("the certificate is not valid before ", TimeText(begin)));
  }
  return absl::OkStatus();
}

absl::Status UseCertificates(SSL_CTX* context, const std::string& file, absl::Time now) {
  SKEIN_ASSIGN_OR_RETURN(const Bio bio, Open(file));
  const Certificate own(PEM_read_bio_X509_AUX(bio.get(), nullptr, NoPassword, nullptr));
  if (own == nullptr) return Wrong(file, "holds no certificate in PEM");
  SKEIN_RETURN_IF_ERROR(CheckTime(file, *own, now));
  if (SSL_CTX_use_certificate(context, own.get()) != 1) return Wrong(file, "cannot be used");
  while (Certificate next{PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr)}) {
    if (SSL_CTX_add1_chain_cert(context, next.get()) != 1) return Wrong(file, "cannot be used");
  }
  // That there is no further one is an error, too.
  if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) {
    return Wrong(file, "a certificate behind the first is broken");
  }
  ERR_clear_error();
  return absl::OkStatus();
}

absl::Status UseKey(SSL_CTX* context, const TlsFiles& files) {
  SKEIN_ASSIGN_OR_RETURN(const Bio bio, Open(files.key));
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) return Wrong(files.key, "holds no private key in PEM without a password");
  if (X509_check_private_key(SSL_CTX_get0_certificate(context), key.get()) != 1) {
    return Wrong(files.key, absl::StrCat("is not the key of ", files.certificate));
  }
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1) return Wrong(files.key, "cannot be used");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsContext> LoadTlsContext(const TlsFiles& files, absl::Time now) {
  ERR_clear_error();
  TlsContext context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1 ||
      SSL_CTX_set_cipher_list(context.get(), kCiphers) != 1) {
    return absl::InternalError("OpenSSL cannot speak TLS 1.2");
  }
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                         SSL_OP_CIPHER_SERVER_PREFERENCE);
  SKEIN_RETURN_IF_ERROR(UseCertificates(context.get(), files.certificate, now));
  SKEIN_RETURN_IF_ERROR(UseKey(context.get(), files));
  return context;
}

}  // namespace skein::coordinator

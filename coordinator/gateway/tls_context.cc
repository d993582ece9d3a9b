#include "coordinator/gateway/tls_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <vector>

#include "base/status_macros.h"
#include "base/tls/pem.h"

namespace skein::coordinator {
namespace {

constexpr char kCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";  // of TLS 1.2

absl::StatusOr<Certificate> UseCertificates(SSL_CTX* context, const std::string& file,
                                            absl::Time now) {
  SKEIN_ASSIGN_OR_RETURN(const Pem pem, ReadPem(file));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Certificate> certificates, ParseCertificates(pem));
  SKEIN_RETURN_IF_ERROR(CheckTime(file, certificates[0], now));
  for (const Certificate& certificate : certificates) {
    const auto used = certificate == certificates[0]
                          ? SSL_CTX_use_certificate(context, certificate.get())
                          : SSL_CTX_add1_chain_cert(context, certificate.get());
    if (used != 1) return PemError(file, "cannot be used");
  }
  return certificates[0];
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
  SKEIN_ASSIGN_OR_RETURN(const Certificate own,
                         UseCertificates(context.get(), files.certificate, now));
  SKEIN_ASSIGN_OR_RETURN(const Pem pem, ReadPem(files.key));
  SKEIN_ASSIGN_OR_RETURN(const PrivateKey key, ParsePrivateKey(pem, own, files.certificate));
  if (SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) {
    return PemError(files.key, "cannot be used");
  }
  return context;
}

}  // namespace skein::coordinator

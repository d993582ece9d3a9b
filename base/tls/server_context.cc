#include "base/tls/server_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"

namespace skein {
namespace {

// Others cost a server milliseconds for each stranger's handshake.
constexpr char kGroups[] = "X25519:P-256:P-384";
constexpr char kCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";  // of TLS 1.2

}  // namespace

absl::StatusOr<TlsContext> NewServerContext(const Pem& certificates, const Pem& key) {
  ERR_clear_error();
  TlsContext context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1 ||
      SSL_CTX_set_cipher_list(context.get(), kCiphers) != 1 ||
      SSL_CTX_set1_groups_list(context.get(), kGroups) != 1) {
    return absl::InternalError("OpenSSL cannot speak TLS 1.2");
  }
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                         SSL_OP_CIPHER_SERVER_PREFERENCE);
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Certificate> chain, ParseCertificates(certificates));
  for (const Certificate& certificate : chain) {
    const auto used = certificate == chain[0]
                          ? SSL_CTX_use_certificate(context.get(), certificate.get())
                          : SSL_CTX_add1_chain_cert(context.get(), certificate.get());
    if (used != 1) return PemError(certificates.file, "cannot be used");
  }
  SKEIN_ASSIGN_OR_RETURN(const PrivateKey own, ParsePrivateKey(key, chain[0], certificates.file));
  if (SSL_CTX_use_PrivateKey(context.get(), own.get()) != 1) {
    return PemError(key.file, "cannot be used");
  }
  return context;
}

absl::StatusOr<TlsContext> NewMutualServerContext(const MutualTls& tls) {
  SKEIN_ASSIGN_OR_RETURN(TlsContext context, NewServerContext({"the certificate", tls.certificates},
                                                              {"the key", tls.key}));
  const Pem ca = {"the CA", tls.ca};
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Certificate> trusted, ParseCertificates(ca));
  for (const Certificate& certificate : trusted) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), certificate.get()) != 1 ||
        SSL_CTX_add_client_CA(context.get(), certificate.get()) != 1) {
      return PemError(ca.file, "cannot be used");
    }
  }
  // An intermediate CA may be all that is trusted, as gRPC's clients take it.
  X509_STORE_set_flags(SSL_CTX_get_cert_store(context.get()), X509_V_FLAG_PARTIAL_CHAIN);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context.get(), 0);
  return context;
}

}  // namespace skein

#include "proto/credentials/credentials.h"

#include "absl/strings/match.h"

namespace skein {

std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const std::optional<MutualTls>& tls) {
  if (!tls.has_value()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = tls->ca;
  options.pem_key_cert_pairs.push_back({tls->key, tls->certificates});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(
    const std::optional<MutualTls>& tls) {
  if (!tls.has_value()) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({tls->ca, tls->key, tls->certificates});
}

std::string TlsHint(const std::string& reason, bool tls) {
  // gRPC tells causes by its text only.
  for (const char* const other : {"Connection refused", "DNS", "unreachable", "No route"}) {
    if (absl::StrContains(reason, other)) return "";
  }
  return tls ? "the coordinator may be without TLS, may not trust --tls-cert, or has a certificate "
               "that is not of --tls-ca or not for this address"
             : "the coordinator may want TLS: --tls-cert FILE --tls-key FILE --tls-ca FILE";
}

}  // namespace skein

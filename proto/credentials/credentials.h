// How the ends of a gRPC connection show who they are.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <optional>
#include <string>

#include "base/tls/mutual_tls.h"

namespace skein {

// A server that asks every client for a certificate of its CA; without `tls` it is plain and asks
// nobody.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const std::optional<MutualTls>& tls);

// A client that shows its certificate, and takes a server whose certificate is of its CA and names
// the host of the address; without `tls` it is plain.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const std::optional<MutualTls>& tls);

// What a person may look at when no connection comes about, for the reason that gRPC gives; empty
// where TLS is not what is wrong, as where nobody listens. `tls`: the client speaks it.
std::string TlsHint(const std::string& reason, bool tls);

}  // namespace skein

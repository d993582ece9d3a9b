// With what servers speak TLS: 1.2, with ciphers that have forward secrecy and authenticate what
// they encrypt, or 1.3.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/tls/mutual_tls.h"
#include "base/tls/pem.h"

typedef struct ssl_ctx_st SSL_CTX;  // OpenSSL's

namespace skein {

// Thread-safe, as OpenSSL has it; connections that were made with it keep what they need.
using TlsContext = std::shared_ptr<SSL_CTX>;

// `certificates`: the server's, then those between it and what clients trust. InvalidArgument names
// the file that is broken, or whose key is another certificate's.
absl::StatusOr<TlsContext> NewServerContext(const Pem& certificates, const Pem& key);

// Takes only clients that show a certificate of tls.ca. No session is resumed: each connection
// shows it anew.
absl::StatusOr<TlsContext> NewMutualServerContext(const MutualTls& tls);

}  // namespace skein

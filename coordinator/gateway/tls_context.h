// The certificate and key with which a server speaks TLS.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

typedef struct ssl_ctx_st SSL_CTX;  // OpenSSL's

namespace skein::coordinator {

// PEM files.
struct TlsFiles {
  std::string certificate;  // the server's, then those between it and what clients trust
  std::string key;          // without a password
};

// Thread-safe, as OpenSSL has it; connections that were made with it keep what they need.
using TlsContext = std::shared_ptr<SSL_CTX>;

// Of TLS 1.2, with ciphers that have forward secrecy and authenticate what they encrypt, or 1.3.
// InvalidArgument and ReadFile's errors name the file and say what is wrong: it cannot be read, the
// key is not that of the certificate, or the certificate has expired by `now`, or is not valid yet:
// clients would refuse it.
absl::StatusOr<TlsContext> LoadTlsContext(const TlsFiles& files, absl::Time now);

}  // namespace skein::coordinator

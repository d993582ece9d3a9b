// The certificate and key with which a server speaks TLS.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/tls/server_context.h"

namespace skein::coordinator {

// PEM files.
struct TlsFiles {
  std::string certificate;  // the server's, then those between it and what clients trust
  std::string key;          // without a password
};

// InvalidArgument and ReadFile's errors name the file and say what is wrong: it cannot be read, the
// key is not that of the certificate, or the certificate has expired by `now`, or is not valid yet:
// clients would refuse it.
absl::StatusOr<TlsContext> LoadTlsContext(const TlsFiles& files, absl::Time now);

}  // namespace skein::coordinator

#include "coordinator/gateway/tls_context.h"

#include <vector>

#include "base/status_macros.h"
#include "base/tls/pem.h"

namespace skein::coordinator {

absl::StatusOr<TlsContext> LoadTlsContext(const TlsFiles& files, absl::Time now) {
  SKEIN_ASSIGN_OR_RETURN(const Pem own, ReadPem(files.certificate));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Certificate> certificates, ParseCertificates(own));
  SKEIN_RETURN_IF_ERROR(CheckTime(own.file, certificates[0], now));
  SKEIN_ASSIGN_OR_RETURN(const Pem key, ReadPem(files.key));
  return NewServerContext(own, key);
}

}  // namespace skein::coordinator

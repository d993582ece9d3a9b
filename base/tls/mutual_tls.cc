#include "base/tls/mutual_tls.h"

#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/tls/pem.h"

namespace skein {
namespace {

// One that is valid is enough: a file may hold an old CA and its successor.
absl::Status CheckCa(const Pem& pem, absl::Time now) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Certificate> trusted, ParseCertificates(pem));
  absl::Status first;
  for (const Certificate& ca : trusted) {
    const absl::Status valid = CheckTime(pem.file, ca, now);
    if (valid.ok()) return absl::OkStatus();
    first.Update(valid);
  }
  return first;
}

}  // namespace

absl::StatusOr<MutualTls> LoadMutualTls(const MutualTlsFiles& files, absl::Time now) {
  SKEIN_ASSIGN_OR_RETURN(Pem own, ReadPem(files.certificate));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Certificate> certificates, ParseCertificates(own));
  SKEIN_RETURN_IF_ERROR(CheckTime(own.file, certificates[0], now));
  SKEIN_ASSIGN_OR_RETURN(Pem key, ReadPem(files.key));
  SKEIN_RETURN_IF_ERROR(ParsePrivateKey(key, certificates[0], own.file).status());
  SKEIN_ASSIGN_OR_RETURN(Pem ca, ReadPem(files.ca));
  SKEIN_RETURN_IF_ERROR(CheckCa(ca, now));
  return MutualTls{std::move(own.text), std::move(key.text), std::move(ca.text)};
}

}  // namespace skein

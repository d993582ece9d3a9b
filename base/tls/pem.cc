#include "base/tls/pem.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdint>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace skein {
namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;

struct BioFreer {
  void operator()(BIO* bio) const { BIO_free_all(bio); }
};
using Bio = std::unique_ptr<BIO, BioFreer>;

// Nobody is there to type one; OpenSSL would ask the terminal.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return -1; }

// Reads the text, which outlives it.
Bio BioOf(const Pem& pem) {
  ERR_clear_error();
  return Bio(BIO_new_mem_buf(pem.text.data(), static_cast<int>(pem.text.size())));
}

std::string TimeText(const ASN1_TIME* time) {
  const Bio text(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(text.get(), time);
  char* data = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(text.get(), &data));
  return {data, size};
}

}  // namespace

absl::Status PemError(const std::string& file, std::string_view what) {
  // The first error says most; others only that what called it failed.
  const char* const reason = ERR_reason_error_string(ERR_get_error());
  ERR_clear_error();
  const std::string why = reason == nullptr ? "" : absl::StrCat(" (", reason, ")");
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", std::string(what), why));
}

absl::StatusOr<Pem> ReadPem(const std::string& file) {
  SKEIN_ASSIGN_OR_RETURN(std::string text, ReadFile(file, kMaxFileBytes));
  return Pem{file, std::move(text)};
}

absl::StatusOr<std::vector<Certificate>> ParseCertificates(const Pem& pem) {
  const Bio bio = BioOf(pem);
  if (bio == nullptr) return PemError(pem.file, "cannot be read");
  std::vector<Certificate> certificates;
  certificates.emplace_back(PEM_read_bio_X509_AUX(bio.get(), nullptr, NoPassword, nullptr),
                            X509_free);
  if (certificates[0] == nullptr) return PemError(pem.file, "holds no certificate in PEM");
  while (X509* const next = PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr)) {
    certificates.emplace_back(next, X509_free);
  }
  // That there is no further one is an error, too.
  if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) {
    return PemError(pem.file, "a certificate behind the first is broken");
  }
  ERR_clear_error();
  return certificates;
}

absl::StatusOr<PrivateKey> ParsePrivateKey(const Pem& pem, const Certificate& certificate,
                                           const std::string& certificate_file) {
  const Bio bio = BioOf(pem);
  if (bio == nullptr) return PemError(pem.file, "cannot be read");
  PrivateKey key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr), EVP_PKEY_free);
  if (key == nullptr) return PemError(pem.file, "holds no private key in PEM without a password");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return PemError(pem.file, absl::StrCat("is not the key of ", certificate_file));
  }
  return key;
}

absl::Status CheckTime(const std::string& file, const Certificate& certificate, absl::Time now) {
  std::time_t seconds = absl::ToTimeT(now);
  const ASN1_TIME* const end = X509_get0_notAfter(certificate.get());
  const ASN1_TIME* const begin = X509_get0_notBefore(certificate.get());
  if (X509_cmp_time(end, &seconds) <= 0) {
    return PemError(file, absl::StrCat("the certificate expired on ", TimeText(end)));
  }
  if (X509_cmp_time(begin, &seconds) > 0) {
    return PemError(file, absl::StrCat("the certificate is not valid before ", TimeText(begin)));
  }
  return absl::OkStatus();
}

}  // namespace skein

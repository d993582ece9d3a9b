// PEM files of certificates and keys, looked at before somebody relies on them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

typedef struct x509_st X509;          // OpenSSL's
typedef struct evp_pkey_st EVP_PKEY;  // likewise

namespace skein {

using Certificate = std::shared_ptr<X509>;
using PrivateKey = std::shared_ptr<EVP_PKEY>;

// Where a PEM text came from, for errors, and the text.
struct Pem {
  std::string file;
  std::string text;
};

// ReadFile's errors.
absl::StatusOr<Pem> ReadPem(const std::string& file);

// One or more, as they follow one another. InvalidArgument, which names the file, for anything
// else.
absl::StatusOr<std::vector<Certificate>> ParseCertificates(const Pem& pem);
// Of this certificate, which came from `certificate_file`; without a password, for which nobody is
// asked.
absl::StatusOr<PrivateKey> ParsePrivateKey(const Pem& pem, const Certificate& certificate,
                                           const std::string& certificate_file);
// InvalidArgument for a certificate that has expired, or is not valid yet.
absl::Status CheckTime(const std::string& file, const Certificate& certificate, absl::Time now);

// InvalidArgument: the file, what is wrong, and what OpenSSL says to it, which is forgotten then.
absl::Status PemError(const std::string& file, std::string_view what);

}  // namespace skein

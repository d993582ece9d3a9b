// Certificates for tests.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/tls/mutual_tls.h"
#include "gtest/gtest.h"

namespace skein {

// A certificate and its key, in files of the test's folder. Its own issuer, or another's.
class TestCertificate {
 public:
  struct Options {
    std::string host = "localhost";  // of a server, besides 127.0.0.1
    int64_t begins_after_s = -3600;
    int64_t ends_after_s = 3600;
    const TestCertificate* issuer = nullptr;
    std::string usage = "serverAuth,clientAuth";
  };

  TestCertificate(const std::string& name, const Options& options)
      : certificate_file(absl::StrCat(::testing::TempDir(), "/", name, ".crt")),
        key_file(absl::StrCat(::testing::TempDir(), "/", name, ".key")) {
    X509* const made = certificate_.get();
    X509_set_version(made, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made), next_serial_++);
    X509_gmtime_adj(X509_getm_notBefore(made), options.begins_after_s);
    X509_gmtime_adj(X509_getm_notAfter(made), options.ends_after_s);
    X509_set_pubkey(made, key_.get());
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    const TestCertificate& issuer = options.issuer == nullptr ? *this : *options.issuer;
    X509_set_issuer_name(made, X509_get_subject_name(issuer.certificate_.get()));
    Add(NID_basic_constraints, options.issuer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
    Add(NID_subject_alt_name, absl::StrCat("DNS:", options.host, ",IP:127.0.0.1"));
    if (options.issuer != nullptr) Add(NID_ext_key_usage, options.usage);
    EXPECT_GT(X509_sign(made, issuer.key_.get(), EVP_sha256()), 0);
    Write(certificate_file, [&](FILE* file) { return PEM_write_X509(file, made); });
    Write(key_file, [&](FILE* file) {
      return PEM_write_PrivateKey(file, key_.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
  }

  // With others' that this CA signed.
  MutualTlsFiles TrustingOnly(const TestCertificate& ca) const {
    return {certificate_file, key_file, ca.certificate_file};
  }

  const std::string certificate_file;
  const std::string key_file;

 private:
  void Add(int kind, const std::string& value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
    EXPECT_EQ(X509_add_ext(certificate_.get(), extension, -1), 1);
    X509_EXTENSION_free(extension);
  }
  template <typename Writer>
  static void Write(const std::string& path, const Writer& writer) {
    FILE* const file = std::fopen(path.c_str(), "w");
    EXPECT_EQ(writer(file), 1);
    std::fclose(file);
  }

  inline static int64_t next_serial_ = 1;
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key_{EVP_EC_gen("P-256"),
                                                                 EVP_PKEY_free};
  const std::unique_ptr<X509, decltype(&X509_free)> certificate_{X509_new(), X509_free};
};

}  // namespace skein

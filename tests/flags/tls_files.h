// Certificates for cases of --tls-cert, --tls-key and --tls-ca.
#pragma once

#include <string>
#include <vector>

#include "base/tls/certificate_for_tests.h"

namespace skein::testing {

inline std::vector<std::string> TlsFlags(const MutualTlsFiles& files) {
  return {"--tls-cert=" + files.certificate, "--tls-key=" + files.key, "--tls-ca=" + files.ca};
}

// A CA and what it signed, for both ends; and another CA with the same.
struct TlsFiles {
  const TestCertificate ca{"ca", {}};
  const TestCertificate own{"own", {.issuer = &ca}};
  const TestCertificate other_ca{"other-ca", {}};
  const TestCertificate stranger{"stranger", {.issuer = &other_ca}};

  MutualTlsFiles good() const { return own.TrustingOnly(ca); }
  std::string flags() const { return Joined(good()); }
  // Each is wrong in one of the three.
  std::string with_wrong_certificate() const {
    return Joined({stranger.certificate_file, stranger.key_file, ca.certificate_file});
  }
  std::string with_wrong_key() const {
    return Joined({own.certificate_file, stranger.key_file, ca.certificate_file});
  }
  std::string with_wrong_ca() const {
    return Joined({own.certificate_file, own.key_file, other_ca.certificate_file});
  }

 private:
  static std::string Joined(const MutualTlsFiles& files) {
    std::string text;
    for (const std::string& flag : TlsFlags(files)) text += " " + flag;
    return text;
  }
};

}  // namespace skein::testing

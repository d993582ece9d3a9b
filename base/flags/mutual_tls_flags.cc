#include "base/flags/mutual_tls_flags.h"

#include "base/flags/flags.h"

namespace skein {

void AddMutualTls(CLI::App& app, MutualTlsFiles& files) {
  CLI::Option* const certificate =
      app.add_option("--tls-cert", files.certificate,
                     "Speak TLS over gRPC, both ends showing who they are: the own certificate, in "
                     "PEM, and those behind it (scripts/make-certs.sh makes some)")
          ->check(NotEmpty());
  CLI::Option* const key =
      app.add_option("--tls-key", files.key,
                     "The private key of --tls-cert, in PEM, without a password")
          ->check(NotEmpty());
  CLI::Option* const ca =
      app.add_option("--tls-ca", files.ca,
                     "The CA, in PEM, that has signed the certificates of those who are trusted")
          ->check(NotEmpty());
  certificate->needs(key)->needs(ca);
  key->needs(certificate)->needs(ca);
  ca->needs(certificate)->needs(key);
}

}  // namespace skein

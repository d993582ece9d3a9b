// Certificates of both ends of a connection: with what each shows who it is, and by what it knows
// the other.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace skein {

// PEM files.
struct MutualTlsFiles {
  std::string certificate;  // the own one, then those between it and what others trust
  std::string key;          // without a password
  std::string ca;           // who signs those that are trusted

  bool given() const { return !certificate.empty(); }
};

// What the files held, once they were found to serve.
struct MutualTls {
  std::string certificates;
  std::string key;
  std::string ca;
};

// InvalidArgument and ReadFile's errors name the file and say what is wrong: it cannot be read, the
// key is not that of the certificate, or the certificate, or each one of the CA file, has expired
// by `now`, or is not valid yet: others would refuse it.
absl::StatusOr<MutualTls> LoadMutualTls(const MutualTlsFiles& files, absl::Time now);

}  // namespace skein

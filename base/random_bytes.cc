#include "base/random_bytes.h"

#include <sys/random.h>

#include <cerrno>

#include "absl/strings/escaping.h"
#include "base/status_macros.h"
#include "base/status_util.h"

namespace skein {

absl::StatusOr<std::string> RandomBytes(size_t bytes) {
  std::string random(bytes, '\0');
  if (getrandom(random.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    return ErrnoStatus(errno, "getrandom");
  }
  return random;
}

absl::StatusOr<std::string> RandomHex(size_t bytes) {
  SKEIN_ASSIGN_OR_RETURN(const std::string random, RandomBytes(bytes));
  return absl::BytesToHexString(random);
}

}  // namespace skein

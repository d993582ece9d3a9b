#include "base/random_bytes.h"

#include <sys/random.h>

#include <cerrno>

#include "base/status_util.h"

namespace skein {

absl::StatusOr<std::string> RandomBytes(size_t bytes) {
  std::string random(bytes, '\0');
  if (getrandom(random.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    return ErrnoStatus(errno, "getrandom");
  }
  return random;
}

}  // namespace skein

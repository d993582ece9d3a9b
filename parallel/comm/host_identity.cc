#include "parallel/comm/host_identity.h"

#include <sys/utsname.h>

#include <cerrno>
#include <fstream>

#include "base/status_util.h"

namespace skein::comm {

absl::StatusOr<HostIdentity> ReadHostIdentity() {
  utsname names = {};
  if (uname(&names) != 0) return ErrnoStatus(errno, "uname");
  constexpr char kPath[] = "/proc/sys/kernel/random/boot_id";
  std::ifstream file(kPath);
  std::string boot_id;
  if (!std::getline(file, boot_id)) {
    return absl::NotFoundError(std::string(kPath) + " cannot be read: is /proc mounted?");
  }
  return HostIdentity{names.nodename, boot_id};
}

}  // namespace skein::comm

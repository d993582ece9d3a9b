// Tells which ranks share a host, with its memory and its processes.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace skein::comm {

struct HostIdentity {
  std::string name;     // uts host name, for people
  std::string boot_id;  // of the running kernel

  // Two ranks share a host when both are equal: containers and test machines with a host name of
  // their own count as hosts of their own.
  friend bool operator==(const HostIdentity&, const HostIdentity&) = default;
};

absl::StatusOr<HostIdentity> ReadHostIdentity();

}  // namespace skein::comm
